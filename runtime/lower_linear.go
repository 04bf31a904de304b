package runtime

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

var linearLowerers = map[string]lowerer{
	"linear":                       lowerLinear,
	"matmul":                       lowerMatmul,
	"einsum":                       lowerEinsum,
	"scaled_dot_product_attention": lowerSDPA,
}

func lowerLinear(l *lowering, op *mil.Op) (instr, error) {
	in, err := l.operands(op, "x", "weight", "bias")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{alias: -1, run: func(f *frame) error {
		x, w, b := f.t[in[0]], f.t[in[1]], f.optional(in[2])
		n, r := len(w.Shape), len(x.Shape)
		if n != 2 || r < 1 || x.Shape[r-1] != w.Shape[1] {
			return fmt.Errorf("x is %v, weight is %v", x, w)
		}
		if err := wantLen("bias", b, w.Shape[0]); err != nil {
			return err
		}
		shape := append(slices.Clone(x.Shape[:r-1]), w.Shape[0])
		out := f.out(o, x.DType, shape...)
		m, dout, k := numElements(x.Shape[:r-1]), w.Shape[0], w.Shape[1]
		if b == nil {
			b = &Tensor{}
		}
		if x.F == nil && w.F == nil {
			matmulNT[int32, int32](f, out.I, x.I, w.I, b.I, m, dout, k)
			return nil
		}
		inFloats(f, out, func(dst []float32) {
			matmulNT[float32, float64](f, dst, floats(x), floats(w), floats(b), m, dout, k)
		})
		return nil
	}}, nil
}

// floats is the elements of t as floating point numbers, nil for no elements.
func floats(t *Tensor) []float32 {
	if t.F != nil || t.I == nil {
		return t.F
	}
	out := make([]float32, len(t.I))
	for i, v := range t.I {
		out[i] = float32(v)
	}
	return out
}

// inFloats fills t with what body computes in floating point; an integer t
// takes it truncated (operands of mixed kind are legal from CoreML7 on).
func inFloats(f *frame, t *Tensor, body func(dst []float32)) {
	if t.F != nil {
		body(t.F)
		return
	}
	tmp := make([]float32, len(t.I))
	body(tmp)
	mapInto(f, t.I, tmp, truncate)
}

func lowerMatmul(l *lowering, op *mil.Op) (instr, error) {
	in, err := l.operands(op, "x", "y")
	if err != nil {
		return instr{}, err
	}
	c, err := l.known(op, "transpose_x", "transpose_y")
	if err != nil {
		return instr{}, err
	}
	tx, ty := c.Bool("transpose_x", false), c.Bool("transpose_y", false)
	ot, ok := op.Out().Tensor()
	if !ok {
		return instr{}, fmt.Errorf("output is %v, want a tensor", op.Out().Type)
	}
	o := l.result(op, 0)
	return instr{alias: -1, run: func(f *frame) error {
		x, y := f.t[in[0]], f.t[in[1]]
		shape, err := mil.MatmulShape(x.Shape, y.Shape, tx, ty)
		if err != nil {
			return err
		}
		out := f.out(o, ot.DType, shape...)
		if x.F == nil && y.F == nil {
			batchMatmul[int32, int32](f, out.I, matrices(x.Shape, x.I, tx, false), matrices(y.Shape, y.I, ty, true))
			return nil
		}
		inFloats(f, out, func(dst []float32) {
			batchMatmul[float32, float64](f, dst, matrices(x.Shape, floats(x), tx, false), matrices(y.Shape, floats(y), ty, true))
		})
		return nil
	}}, nil
}

// stack is a batch of matrices, stored as [batch..., rows, cols] and read
// transposed if t is set.
type stack[T any] struct {
	batch      []int
	rows, cols int
	data       []T
	t          bool
}

// matrices views an operand of matmul; a vector is a row, or a column if it
// is on the right.
func matrices[T any](shape []int, data []T, t, right bool) stack[T] {
	switch n := len(shape); {
	case n > 1:
		return stack[T]{shape[:n-2], shape[n-2], shape[n-1], data, t}
	case right:
		return stack[T]{nil, shape[0], 1, data, t}
	default:
		return stack[T]{nil, 1, shape[0], data, t}
	}
}

// at is matrix number i of the stack broadcast to batch, transposed if wanted.
func (s stack[T]) at(i int, batch []int, transposed bool, scratch *[]T) []T {
	n := s.rows * s.cols
	off := offsetOf(i, batch, broadcastStrides(s.batch, batch)) * n
	m := s.data[off : off+n]
	if transposed == s.t {
		return m
	}
	*scratch = slices.Grow((*scratch)[:0], n)[:n]
	transposeInto(*scratch, m, s.rows, s.cols)
	return *scratch
}

func batchMatmul[T float32 | int32, A float64 | int32](f *frame, dst []T, x, y stack[T]) {
	batch, _ := mil.Broadcast(x.batch, y.batch)
	m, k, n := x.rows, x.cols, y.cols
	if x.t {
		m, k = k, m
	}
	if y.t {
		n = y.rows
	}
	var sx, sy []T
	for i := range numElements(batch) {
		a := x.at(i, batch, false, &sx)
		b := y.at(i, batch, true, &sy)
		matmulNT[T, A](f, dst[i*m*n:(i+1)*m*n], a, b, nil, m, n, k)
	}
}

func lowerEinsum(l *lowering, op *mil.Op) (instr, error) {
	v := op.Ins("values")
	if len(v) != 2 {
		return instr{}, fmt.Errorf("values holds %d tensors, want 2", len(v))
	}
	var in [2]int
	for i := range in {
		s, err := l.slot(v[i])
		if err != nil {
			return instr{}, err
		}
		in[i] = s
	}
	o := l.result(op, 0)
	return instr{alias: -1, run: func(f *frame) error {
		x, y := f.t[in[0]], f.t[in[1]]
		if len(x.Shape) < 3 || len(x.Shape) != len(y.Shape) {
			return fmt.Errorf("values are %v and %v", x, y)
		}
		shape, err := mil.EinsumShape(x.Shape, y.Shape)
		if err != nil {
			return err
		}
		out := f.out(o, x.DType, shape...)
		if out.F != nil {
			einsum[float32, float64](f, out.F, x.F, y.F, shape, x.Shape, y.Shape)
		} else {
			einsum[int32, int32](f, out.I, x.I, y.I, shape, x.Shape, y.Shape)
		}
		return nil
	}}, nil
}

// einsum contracts the last axis of x with axis -3 of y; axes -2 and -4 are
// batches.
func einsum[T float32 | int32, A float64 | int32](f *frame, dst, a, b []T, shape, as, bs []int) {
	n := len(shape)
	k := as[n-1]
	sa, sb := broadcastStrides(as, shape), broadcastStrides(bs, shape)
	sa[n-1], sb[n-3] = 0, 0 // the output walks neither contracted axis
	stepB := strides(bs)[n-3]
	f.par(len(dst), 1+4096/max(k, 1), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			pa, pb := offsetOf(i, shape, sa), offsetOf(i, shape, sb)
			var s A
			for j := range k {
				s += A(a[pa+j]) * A(b[pb+j*stepB])
			}
			dst[i] = T(s)
		}
	})
}

func lowerSDPA(l *lowering, op *mil.Op) (instr, error) {
	in, err := l.operands(op, "query", "key", "value", "attn_mask")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{alias: -1, run: func(f *frame) error {
		q, k, v, mask := f.t[in[0]], f.t[in[1]], f.t[in[2]], f.optional(in[3])
		r := len(q.Shape)
		if r < 3 || len(k.Shape) != r || len(v.Shape) != r ||
			k.Shape[r-1] != q.Shape[r-1] || v.Shape[r-2] != k.Shape[r-2] ||
			!slices.Equal(q.Shape[:r-2], k.Shape[:r-2]) || !slices.Equal(q.Shape[:r-2], v.Shape[:r-2]) {
			return fmt.Errorf("query is %v, key is %v, value is %v", q, k, v)
		}
		rows := q.Shape[:r-1]
		e, ev, n := q.Shape[r-1], v.Shape[r-1], k.Shape[r-2]
		var walk []int
		if mask != nil {
			scores := append(slices.Clone(rows), n)
			got, err := mil.Broadcast(mask.Shape, scores)
			if err != nil || !slices.Equal(got, scores) {
				return fmt.Errorf("attn_mask is %v, scores are %v", mask, scores)
			}
			walk = broadcastStrides(mask.Shape, scores)
		}
		out := f.out(o, q.DType, append(slices.Clone(rows), ev)...)
		length := q.Shape[r-2]
		scale := 1 / math.Sqrt(float64(e))
		f.par(numElements(rows), 1+8192/max(1, n*(e+ev)), func(lo, hi int) {
			p, acc := make([]float64, n), make([]float64, ev)
			for i := lo; i < hi; i++ {
				batch := i / length
				query, keys := q.F[i*e:(i+1)*e], k.F[batch*n*e:]
				for j := range p {
					p[j] = dot64(query, keys[j*e:j*e+e]) * scale
				}
				if mask != nil {
					addMask(p, mask, offsetOf(i, rows, walk), walk[r-1])
				}
				softmax64(p)
				clear(acc)
				values := v.F[batch*n*ev:]
				for j, w := range p {
					for d, x := range values[j*ev : j*ev+ev] {
						acc[d] += float64(w * float64(x))
					}
				}
				for d, x := range acc {
					out.F[i*ev+d] = float32(x)
				}
			}
		})
		return nil
	}}, nil
}

func dot64(x, y []float32) float64 {
	s := 0.0
	for i, v := range x {
		s += float64(v) * float64(y[i])
	}
	return s
}

// addMask adds a float mask to scores, or sets those that a bool mask turns
// off to -Inf.
func addMask(scores []float64, mask *Tensor, at, step int) {
	for j := range scores {
		if mask.F != nil {
			scores[j] += float64(mask.F[at+j*step])
		} else if mask.I[at+j*step] == 0 {
			scores[j] = math.Inf(-1)
		}
	}
}

// softmax64 replaces p by its softmax.
func softmax64(p []float64) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range p {
		top = max(top, v)
	}
	for i, v := range p {
		p[i] = math.Exp(v - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
}
