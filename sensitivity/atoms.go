package sensitivity

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/littleendian"
	"github.com/smelt-go/smelt/internal/parallel"
)

// How a distribution over a large vocabulary is reduced: tokens of at least
// likely are kept as they are; draws systematic draws from the rest, with equal
// steps along its cumulated probability, share what the rest has.
const (
	likely = 1.0 / 2048
	draws  = 512
	small  = 2048 // vocabularies that are not reduced
)

// atoms is the reduced distribution of the reference at one position.
type atoms struct {
	ids    []int32
	weight []float64 // sums to 1
	logit  []float32 // of the reference
}

// reduce makes atoms of the logits at a position. Rows draw differently.
func reduce(logits []float32, row int, seed uint64) atoms {
	peak := float64(kernel.Max(logits))
	p := make([]float64, len(logits))
	var sum float64
	for i, z := range logits {
		p[i] = math.Exp(float64(z) - peak)
		sum += p[i]
	}
	var a atoms
	add := func(i int, w float64) {
		a.ids = append(a.ids, int32(i))
		a.weight = append(a.weight, w)
	}
	var rest float64
	for i := range p {
		p[i] /= sum
		if len(p) > small && p[i] < likely {
			rest += p[i]
		}
	}
	step := rest / draws
	next := rand.New(rand.NewPCG(seed, uint64(row))).Float64() * step
	var before float64
	for i, x := range p {
		if len(p) <= small || x >= likely {
			add(i, x)
			continue
		}
		n := 0
		for before+x > next && step > 0 {
			next += step
			n++
		}
		before += x
		if n > 0 {
			add(i, float64(n)*step)
		}
	}
	var total float64
	for _, w := range a.weight {
		total += w
	}
	for i := range a.weight {
		a.weight[i] /= total
	}
	return a
}

// kl is the divergence from the reference of logits at the atoms.
func (a *atoms) kl(z []float32) float64 {
	kl, _, _ := divergence(a.weight, a.logit, z)
	return kl
}

// divergence of logits from those of a reference with probabilities weight, which
// sum to 1.
//
// With d = z − ref it is ln Σw·e^d − Σw·d, which is that of the distributions
// restricted to the atoms; by Jensen's inequality it is not negative. peak is the
// largest d and sum is Σw·e^(d−peak).
func divergence(weight []float64, ref, z []float32) (kl, peak, sum float64) {
	peak = math.Inf(-1)
	var mean float64
	for i, v := range z {
		if w := weight[i]; w > 0 {
			d := float64(v) - float64(ref[i])
			peak = max(peak, d)
			mean += float64(w * d)
		}
	}
	var less float64 // sum − 1, exact where d is small
	for i, v := range z {
		if w := weight[i]; w > 0 {
			d := float64(v) - float64(ref[i]) - peak
			sum += float64(w * math.Exp(d))
			less += float64(w * math.Expm1(d))
		}
	}
	if kl = math.Log(sum); less > -0.5 {
		kl = math.Log1p(less)
	}
	return max(0, kl+(peak-mean)), peak, sum
}

// head computes logits at atoms.
type head struct {
	t       checkpoint.Tensor // [vocabulary, hidden]
	raw     []uint16          // its elements, if they are mapped bfloat16
	hidden  int
	softcap float32
}

func newHead(t checkpoint.Tensor, softcap float32) *head {
	h := &head{t: t, hidden: t.Shape()[1], softcap: softcap}
	if t.DType() == checkpoint.BF16 {
		if b, ok := checkpoint.Raw(t); ok {
			h.raw, _ = littleendian.View[uint16](b)
		}
	}
	return h
}

// gather reads the rows of tokens.
func (h *head) gather(dst []float32, ids []int32) error {
	if h.raw != nil {
		return checkpoint.Guard(func() error {
			for i, id := range ids {
				kernel.BF16ToF32(dst[i*h.hidden:(i+1)*h.hidden], h.raw[int(id)*h.hidden:(int(id)+1)*h.hidden])
			}
			return nil
		})
	}
	for i, id := range ids {
		if err := h.t.ReadFloat32(dst[i*h.hidden:(i+1)*h.hidden], int(id)*h.hidden); err != nil {
			return err
		}
	}
	return nil
}

// divergences compares variants with the reference. x is the input of the head,
// variant after variant, each with a row for every position; h their head. The
// result is [variant][position].
func divergences(ref []atoms, h *head, x decoder.Matrix) ([][]float64, error) {
	n := x.Rows / len(ref)
	out := make([][]float64, n)
	for i := range out {
		out[i] = make([]float64, len(ref))
	}
	err := parallel.Each(len(ref), func(w *workspace, pos int) error {
		z, err := w.logits(h, ref[pos].ids, x, pos, len(ref), n)
		if err != nil {
			return err
		}
		k := len(ref[pos].ids)
		for v := range n {
			out[v][pos] = ref[pos].kl(z[v*k : (v+1)*k])
		}
		return nil
	})
	return out, err
}

// workspace is the memory of a goroutine.
type workspace struct{ rows, x, z []float32 }

// logits of n rows of x, from first on and step apart, at some tokens.
func (w *workspace) logits(h *head, ids []int32, x decoder.Matrix, first, step, n int) ([]float32, error) {
	w.rows = grown(w.rows, len(ids)*h.hidden)
	if err := h.gather(w.rows, ids); err != nil {
		return nil, err
	}
	w.x, w.z = grown(w.x, n*h.hidden), grown(w.z, n*len(ids))
	for v := range n {
		copy(w.x[v*h.hidden:(v+1)*h.hidden], x.Row(first+v*step))
	}
	kernel.MulF32(w.z, len(ids), w.x, h.hidden, n, w.rows, h.hidden, len(ids), h.hidden)
	if h.softcap != 0 {
		c := float64(h.softcap)
		for i, v := range w.z {
			w.z[i] = float32(math.Tanh(float64(v)/c) * c)
		}
	}
	return w.z, nil
}

func grown(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}

// reference reduces the distributions of d at all positions of a finished state.
func reference(ctx context.Context, d *decoder.Decoder, x decoder.Matrix, seed uint64) ([]atoms, error) {
	const rows = 48 // whose logits are in memory together
	hd, err := d.NewHead(nil)
	if err != nil {
		return nil, err
	}
	h, err := newHeadOf(d, nil)
	if err != nil {
		return nil, err
	}
	vocab := d.Config().Vocab
	out := make([]atoms, x.Rows)
	logits := make([]float32, min(rows, x.Rows)*vocab)
	for from := 0; from < x.Rows; from += rows {
		n := min(rows, x.Rows-from)
		part := decoder.Matrix{Rows: n, Cols: x.Cols, Data: x.Data[from*x.Cols : (from+n)*x.Cols]}
		err := hd.Logits(ctx, part, func(row, first int, l []float32) error {
			copy(logits[row*vocab+first:], l)
			return nil
		})
		if err != nil {
			return nil, err
		}
		err = parallel.Each(n, func(w *workspace, i int) error {
			a := reduce(logits[i*vocab:(i+1)*vocab], from+i, seed)
			z, err := w.logits(h, a.ids, part, i, 1, 1)
			if err != nil {
				return err
			}
			a.logit = append([]float32(nil), z...)
			for _, v := range a.logit {
				if v-v != 0 {
					return fmt.Errorf("sensitivity: position %d: the reference's logits are not finite", from+i)
				}
			}
			out[from+i] = a
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// newHeadOf is the head of d, or w in its place.
func newHeadOf(d *decoder.Decoder, w checkpoint.Tensor) (*head, error) {
	if w == nil {
		var ok bool
		if w, ok = d.Source().Tensor(d.Head() + ".weight"); !ok {
			return nil, fmt.Errorf("sensitivity: tensor %q is missing", d.Head()+".weight")
		}
	}
	return newHead(w, d.Config().FinalSoftcap), nil
}
