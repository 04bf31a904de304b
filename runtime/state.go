package runtime

import (
	"fmt"
	"maps"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// A state's tensor is replaced, never changed in place, by write_state: it
// then shares the buffer of the value written, as read_state shares the
// state's. Values read earlier keep the old buffer.

// States lists the names of the program's states in sorted order.
func (i *Instance) States() []string { return slices.Sorted(maps.Keys(i.prog.states)) }

// State returns a copy of a state.
func (i *Instance) State(name string) (*Tensor, bool) {
	h, ok := i.states[name]
	if !ok {
		return nil, false
	}
	t := NewTensor(h.DType, slices.Clone(h.Shape)...)
	copy(t.F, h.F)
	copy(t.I, h.I)
	return t, true
}

// SetState replaces the contents of a state with a copy of t, which must have
// the declared type. In Typed mode fp16 elements are rounded.
func (i *Instance) SetState(name string, t *Tensor) error {
	ty, ok := i.prog.states[name]
	if !ok {
		return fmt.Errorf("runtime: there is no state %q (the program has %v)", name, i.States())
	}
	if err := checkTensor(t, ty); err != nil {
		return fmt.Errorf("runtime: state %q: %w", name, err)
	}
	h := i.freshState(name)
	copy(h.F, t.F)
	copy(h.I, t.I)
	if i.prog.opts.Mode == Typed {
		roundTo(&h.Tensor)
	}
	return nil
}

// ResetStates zeroes all states.
func (i *Instance) ResetStates() {
	for name := range i.prog.states {
		h := i.freshState(name)
		clear(h.F)
		clear(h.I)
	}
}

// freshState gives a state a buffer that nobody else refers to.
func (i *Instance) freshState(name string) *held {
	ty := i.prog.states[name]
	h := i.states[name]
	if h == nil {
		h = &held{}
		h.DType, h.Shape = ty.DType, slices.Clone(ty.Shape)
		i.states[name] = h
	}
	n := ty.NumElements()
	float := ty.DType.IsFloat()
	i.mem.release(h.buf)
	h.buf = i.mem.take(n, float)
	if float {
		h.F = h.buf.f[:n]
	} else {
		h.I = h.buf.i[:n]
	}
	return h
}

func readState(l *lowering, op *mil.Op) (instr, bool, error) {
	v := op.In("input")
	if v == nil || len(op.Outputs) != 1 {
		return instr{}, false, nil
	}
	if _, err := l.slot(v); err != nil {
		return instr{}, false, err
	}
	name, o := v.Name, l.result(op, 0)
	return instr{out: []int{o}, exact: true, alias: -1, run: func(f *frame) error {
		h := f.state[name]
		f.hold(o, &h.Tensor, h.buf, 0, h.Shape)
		return nil
	}}, true, nil
}

func writeState(l *lowering, op *mil.Op) (instr, bool, error) {
	v := op.In("input")
	if v == nil {
		return instr{}, false, nil
	}
	if _, err := l.slot(v); err != nil {
		return instr{}, false, err
	}
	data, err := l.must(op, "data")
	if err != nil {
		return instr{}, false, err
	}
	name := v.Name
	var outs []int
	for i := range op.Outputs {
		outs = append(outs, l.result(op, i))
	}
	return instr{out: outs, exact: true, alias: -1, run: func(f *frame) error {
		if err := f.setState(name, data); err != nil {
			return err
		}
		for _, o := range outs {
			h := f.state[name]
			f.hold(o, &h.Tensor, h.buf, 0, h.Shape)
		}
		return nil
	}}, true, nil
}

// setState makes the value in slot s the contents of a state.
func (f *frame) setState(name string, s int) error {
	h, t := f.state[name], f.t[s]
	if t.DType != h.DType || !slices.Equal(t.Shape, h.Shape) {
		return fmt.Errorf("data is %v, the state %q is %v", t, name, &h.Tensor)
	}
	var b *buffer
	if t == &f.own[s].Tensor {
		b = f.own[s].buf
	}
	if b != nil && 2*t.Len() >= len(b.f)+len(b.i) {
		b.refs++
		f.mem.release(h.buf)
		h.buf, h.F, h.I = b, t.F, t.I
		return nil
	}
	// The value belongs to a constant or the caller, or is a part of a larger
	// buffer that the state should not keep: copy.
	n := t.Len()
	c := f.mem.take(n, t.DType.IsFloat())
	if t.F != nil {
		h.F = c.f[:n]
		copy(h.F, t.F)
	} else {
		h.I = c.i[:n]
		copy(h.I, t.I)
	}
	f.mem.release(h.buf)
	h.buf = c
	return nil
}
