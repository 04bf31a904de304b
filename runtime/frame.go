package runtime

import "github.com/smelt-go/smelt/mil"

// frame is the working memory of one run: a tensor per slot.
type frame struct {
	t    []*Tensor
	mode Mode
	pool *pool
	// state tensors by name, shared by all functions of an instance
	state map[string]*Tensor
}

// out prepares slot s to receive a tensor of the given type, reusing its
// buffer. The contents are undefined. shape is copied.
func (f *frame) out(s int, d mil.DType, shape ...int) *Tensor {
	t := f.t[s]
	if t == nil {
		t = &Tensor{}
		f.t[s] = t
	}
	t.DType = d
	t.Shape = append(t.Shape[:0], shape...)
	n := numElements(shape)
	if d.IsFloat() {
		if cap(t.F) < n {
			t.F = make([]float32, n)
		}
		t.F, t.I = t.F[:n], nil
	} else {
		if cap(t.I) < n {
			t.I = make([]int32, n)
		}
		t.I, t.F = t.I[:n], nil
	}
	return t
}

// view makes slot s an alias of src's storage from element off on, with
// another shape.
func (f *frame) view(s int, src *Tensor, off int, shape ...int) {
	n := numElements(shape)
	t := &Tensor{DType: src.DType, Shape: append([]int(nil), shape...)}
	if src.F != nil {
		t.F = src.F[off : off+n : off+n]
	} else {
		t.I = src.I[off : off+n : off+n]
	}
	f.t[s] = t
}

// par splits [0,n) into ranges of at least grain elements and runs body on
// the worker pool. Every element must be computed by one call alone, in an
// order that does not depend on the split.
func (f *frame) par(n, grain int, body func(lo, hi int)) { f.pool.run(n, grain, body) }
