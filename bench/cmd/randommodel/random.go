package main

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"math"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/half"
)

// random is a bf16 tensor whose elements are drawn as they are written.
type random struct {
	name  string
	shape []int
	seed  uint64
	// values are equally likely: quantiles of the element's distribution, so
	// that 16 random bits make an element.
	values []uint16
}

// newRandom chooses the distribution by the kind of tensor, so that a forward
// pass stays finite: gains around one, matrices that keep the size of vectors.
func newRandom(name string, shape []int, seed uint64) *random {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	mean, deviation := 0.0, 0.0
	switch {
	case strings.HasSuffix(name, "layer_scalar"):
		mean, deviation = 0.6, 0.1
	case strings.HasSuffix(name, "q_norm.weight"), strings.HasSuffix(name, "k_norm.weight"):
		// Gains of one would spread scores so far that softmax picks one key, and
		// that rounding decides which.
		mean, deviation = 0.25, 0.02
	case len(shape) == 1:
		mean, deviation = 1, 0.1
	default:
		deviation = 1 / math.Sqrt(float64(shape[1]))
	}
	return &random{name: name, shape: shape, seed: seed ^ h.Sum64(), values: quantiles(mean, deviation)}
}

// quantiles are 65,536 equally likely values of a normal distribution.
func quantiles(mean, deviation float64) []uint16 {
	v := make([]uint16, 1<<16)
	for i := range v {
		u := (float64(i) + 0.5) / float64(len(v))
		v[i] = half.ToBF16(float32(mean + deviation*math.Sqrt2*math.Erfinv(2*u-1)))
	}
	return v
}

func (r *random) Name() string            { return r.name }
func (r *random) DType() checkpoint.DType { return checkpoint.BF16 }
func (r *random) Shape() []int            { return r.shape }

func (r *random) ReadFloat32([]float32, int) error {
	return errors.New("random tensors are only written")
}

// WriteTo draws with SplitMix64 (Steele, Lea and Flood 2014), four elements a
// number.
func (r *random) WriteTo(w io.Writer) (int64, error) {
	buf := make([]byte, 1<<20)
	state, done := r.seed, int64(0)
	for left := checkpoint.NumBytes(r); left > 0; {
		b := buf[:min(left, int64(len(buf)))]
		for at := 0; at < len(b); at += 8 {
			state += 0x9e3779b97f4a7c15
			z := state
			z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
			z = (z ^ z>>27) * 0x94d049bb133111eb
			z ^= z >> 31
			for i := at; i < min(at+8, len(b)); i += 2 {
				binary.LittleEndian.PutUint16(b[i:], r.values[z&0xffff])
				z >>= 16
			}
		}
		n, err := w.Write(b)
		done, left = done+int64(n), left-int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
