package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// operands resolves inputs to slots, in the order of names; an input that is
// unbound and has no default is -1.
func (l *lowering) operands(op *mil.Op, names ...string) ([]int, error) {
	out := make([]int, len(names))
	for i, n := range names {
		s, err := l.in(op, n)
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}

// known gives access to parameters that are read while lowering: each must be
// unbound or a constant.
func (l *lowering) known(op *mil.Op, names ...string) (*mil.Infer, error) {
	c := l.infer(op)
	for _, n := range names {
		if c.Has(n) && c.Const(n) == nil {
			return nil, fmt.Errorf("input %s must be a constant", n)
		}
	}
	return c, nil
}

// optional is the tensor in slot s, or nil for -1.
func (f *frame) optional(s int) *Tensor {
	if s < 0 {
		return nil
	}
	return f.t[s]
}

// axisSplit views a shape as [outer, n, inner] around an axis.
func axisSplit(shape []int, axis int) (outer, n, inner int) {
	return numElements(shape[:axis]), shape[axis], numElements(shape[axis+1:])
}

// like is the instruction of an op whose output 0 has the shape and type of
// input x and is filled by body.
func (l *lowering) like(op *mil.Op, x int, exact bool, body func(f *frame, x, out *Tensor) error) instr {
	o := l.result(op, 0)
	return instr{exact: exact, alias: -1, run: func(f *frame) error {
		in := f.t[x]
		return body(f, in, f.out(o, in.DType, in.Shape...))
	}}
}
