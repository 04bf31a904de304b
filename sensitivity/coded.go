package sensitivity

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/quant"
)

// codecOf is the codec of a candidate format.
func codecOf(f quant.Format) (quant.Codec, error) {
	r := quant.Recipe{Target: quant.TargetMLX, Default: f}
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("sensitivity: %s cannot be probed: %w", Name(f), err)
	}
	switch f.Codec {
	case "affine":
		return quant.NewAffine(f.Bits, f.GroupSize, f.Rounding)
	case "turboquant":
		return quant.NewTurbo(f.Bits, f.GroupSize)
	}
	return quant.NewFloat(f.Codec)
}

// coded is a matrix in a codec's format in memory, which presents itself
// decoded, in float32 where the format allows, as quantized products see it.
type coded struct {
	checkpoint.Tensor // the original: name, type, shape
	codec             quant.Codec
	parts             [][]byte
	each              []int // bytes of a row of each part
	cols              int
	bytes             int64
	stats             quant.Stats
}

// encode codes t without calibration.
func encode(ctx context.Context, f quant.Format, t checkpoint.Tensor) (*coded, error) {
	return encodeWith(f, t, quant.Options{Method: f.Method, Context: ctx})
}

func encodeWith(f quant.Format, t checkpoint.Tensor, o quant.Options) (*coded, error) {
	c, err := codecOf(f)
	if err != nil {
		return nil, err
	}
	e, err := quant.Encode(c, t, "x", o)
	if err != nil {
		return nil, err
	}
	shape := t.Shape()
	out := &coded{Tensor: t, codec: c, cols: shape[len(shape)-1]}
	rows := checkpoint.NumElements(t) / out.cols
	for _, p := range e.Parts {
		var b bytes.Buffer
		b.Grow(int(checkpoint.NumBytes(p)))
		if _, err := p.WriteTo(&b); err != nil {
			return nil, err
		}
		out.parts = append(out.parts, b.Bytes())
		out.each = append(out.each, b.Len()/rows)
		out.bytes += int64(b.Len())
	}
	out.stats = e.Stats
	return out, nil
}

// DType is what ReadFloat32 gives, not that of the original's bytes.
func (c *coded) DType() checkpoint.DType { return checkpoint.F32 }

// WriteTo is refused: the decoded matrix is for reading.
func (c *coded) WriteTo(io.Writer) (int64, error) {
	return 0, fmt.Errorf("sensitivity: tensor %q is decoded in memory only", c.Name())
}

// ReadFloat32 decodes the rows that dst is in.
func (c *coded) ReadFloat32(dst []float32, off int) error {
	first, last := off/c.cols, (off+len(dst)+c.cols-1)/c.cols
	src := make([][]byte, len(c.parts))
	for i, p := range c.parts {
		src[i] = p[first*c.each[i] : last*c.each[i]]
	}
	whole := dst
	exact := off%c.cols == 0 && len(dst)%c.cols == 0
	if !exact {
		whole = make([]float32, (last-first)*c.cols)
	}
	switch x := c.codec.(type) {
	case quant.Affine:
		x.DecodeFloat32(whole, src, c.Tensor.DType())
	case quant.Turbo:
		x.DecodeFloat32(whole, src, c.cols)
	default:
		c.codec.Decode(whole, src, c.cols, c.Tensor.DType())
	}
	if !exact {
		copy(dst, whole[off-first*c.cols:])
	}
	return nil
}

// dense is the decoded matrix in memory.
func (c *coded) dense() (checkpoint.Tensor, error) {
	w := make([]float32, checkpoint.NumElements(c.Tensor))
	if err := c.ReadFloat32(w, 0); err != nil {
		return nil, err
	}
	return checkpoint.NewFloat32(c.Name(), c.Shape(), w), nil
}

// noisy is t with Gaussian noise of the given relative squared error.
func noisy(t checkpoint.Tensor, relative float64, seed uint64) (checkpoint.Tensor, float64, error) {
	w, err := checkpoint.ReadAll(t)
	if err != nil {
		return nil, 0, err
	}
	var energy float64
	for _, x := range w {
		energy += float64(float64(x) * float64(x))
	}
	deviation := math.Sqrt(relative * energy / float64(len(w)))
	rng := rand.New(rand.NewPCG(seed, uint64(len(w))))
	var spent float64
	for i, x := range w {
		y := float32(float64(x) + float64(deviation*rng.NormFloat64()))
		d := float64(y) - float64(x)
		spent += float64(d * d)
		w[i] = y
	}
	if energy == 0 {
		return checkpoint.NewFloat32(t.Name(), t.Shape(), w), 0, nil
	}
	return checkpoint.NewFloat32(t.Name(), t.Shape(), w), spent / energy, nil
}
