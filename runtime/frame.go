package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// frame is the working memory of one function in one instance: a tensor per
// slot. A slot that holds a constant or an input points to the tensor of its
// owner; every other points to own[slot], whose storage is counted.
type frame struct {
	t       []*Tensor
	own     []held
	cur     *instr // the instruction being executed
	locals  []any
	mode    Mode
	pool    *pool
	mem     *arena
	tap     func(name string, t *Tensor)
	profile *Profile
	// state tensors by name, shared by all functions of an instance
	state   map[string]*held
	results map[string]*Tensor
	check   checkF16
	runs    int       // counts runs, for what stays the same during one
	scratch []float32 // of the instruction being executed
	packed  packTask  // likewise
}

// held is a tensor with the buffer that its elements are in; buf is nil if
// they belong to somebody else.
type held struct {
	Tensor
	buf *buffer
}

func newFrame(c *code, p *Program, i *Instance) *frame {
	f := &frame{
		t: make([]*Tensor, c.slots), own: make([]held, c.slots), locals: make([]any, c.locals),
		mode: p.opts.Mode, pool: p.pool,
	}
	if i != nil {
		f.mem, f.state = &i.mem, i.states
	} else {
		f.mem = &arena{}
	}
	for s, t := range c.consts {
		f.t[s] = t
	}
	return f
}

// out prepares slot s to receive a tensor of the given type. The contents are
// undefined. shape is copied.
func (f *frame) out(s int, d mil.DType, shape ...int) *Tensor {
	h := &f.own[s]
	n := numElements(shape)
	float := d.IsFloat()
	if b := h.buf; b != nil && (b.refs > 1 || float && cap(b.f) < n || !float && cap(b.i) < n) {
		f.mem.release(b)
		h.buf = nil
	}
	if h.buf == nil {
		h.buf = f.mem.take(n, float)
	}
	h.DType = d
	h.Shape = append(h.Shape[:0], shape...)
	if float {
		h.F, h.I = h.buf.f[:n], nil
	} else {
		h.I, h.F = h.buf.i[:n], nil
	}
	f.t[s] = &h.Tensor
	return &h.Tensor
}

// view makes slot s an alias of src's storage from element off on, with
// another shape. src is a tensor that the current op reads.
func (f *frame) view(s int, src *Tensor, off int, shape ...int) {
	f.hold(s, src, f.bufferOf(src), off, shape)
}

// share makes slot dst an alias of the whole of slot src.
func (f *frame) share(dst, src int) {
	t := f.t[src]
	var b *buffer
	if t == &f.own[src].Tensor {
		b = f.own[src].buf
	}
	f.hold(dst, t, b, 0, t.Shape)
}

func (f *frame) hold(s int, src *Tensor, b *buffer, off int, shape []int) {
	h := &f.own[s]
	if b != nil {
		b.refs++
	}
	if h.buf != nil {
		f.mem.release(h.buf)
	}
	n := numElements(shape)
	h.buf = b
	h.DType = src.DType
	// src may be h itself.
	fl, in := src.F, src.I
	h.F, h.I = nil, nil
	if fl != nil {
		h.F = fl[off : off+n : off+n]
	} else {
		h.I = in[off : off+n : off+n]
	}
	h.Shape = append(h.Shape[:0], shape...)
	f.t[s] = &h.Tensor
}

// bufferOf finds the buffer behind a tensor that the current op reads; nil if
// it belongs to a constant or the caller.
func (f *frame) bufferOf(src *Tensor) *buffer {
	if f.cur == nil {
		return nil
	}
	for _, r := range f.cur.reads {
		if src == &f.own[r].Tensor {
			return f.own[r].buf
		}
	}
	for i := range f.cur.out {
		if r := f.cur.out[i]; src == &f.own[r].Tensor {
			return f.own[r].buf
		}
	}
	return nil
}

// drop ends the lifetime of slot s.
func (f *frame) drop(s int) {
	h := &f.own[s]
	if h.buf != nil {
		f.mem.release(h.buf)
		h.buf = nil
	}
	h.F, h.I = nil, nil
	f.t[s] = nil
}

// par splits [0,n) into ranges of at least grain elements and runs body on
// the worker pool. Every element must be computed by one call alone, in an
// order that does not depend on the split.
func (f *frame) par(n, grain int, body func(lo, hi int)) { f.pool.run(n, grain, body) }

// local returns the frame's scratch number id (reserved by lowering.local),
// zero at first. It belongs to one instruction of one frame.
func local[T any](f *frame, id int) *T {
	if f.locals[id] == nil {
		f.locals[id] = new(T)
	}
	return f.locals[id].(*T)
}

// exec runs a list of instructions.
func (f *frame) exec(list []instr) error {
	outer := f.cur
	for k := range list {
		in := &list[k]
		f.cur = in
		var err error
		if f.profile != nil {
			err = f.profile.timed(f, in)
		} else {
			err = f.step(in)
		}
		if err != nil {
			return fmt.Errorf("op %q (%s): %w", in.op.Name, in.op.Kind, err)
		}
		if f.tap != nil {
			for i, s := range in.out {
				if i < len(in.op.Outputs) && f.t[s] != nil {
					f.tap(in.op.Outputs[i].Name, f.t[s])
				}
			}
		}
		for _, s := range in.dead {
			f.drop(s)
		}
	}
	f.cur = outer
	return nil
}

// step runs one instruction and rounds what it has computed.
func (f *frame) step(in *instr) error {
	if err := in.run(f); err != nil {
		return err
	}
	if !in.exact && f.mode == Typed {
		for _, s := range in.out {
			f.roundSlot(s)
		}
	}
	return nil
}

// run executes a nested block whose input slots have been filled.
func (b *block) run(f *frame) error { return f.exec(b.code) }
