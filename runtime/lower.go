package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// A step executes one op on a frame.
type step func(f *frame) error

// instr is one lowered op.
type instr struct {
	run step
	out []int // slots written
	// exact marks results that need no rounding in Typed mode because every
	// element is copied, selected or integer.
	exact bool
	// alias is the slot whose storage the output may share, or -1.
	alias int
	op    *mil.Op
	reads []int // slots resolved by the lowerer
	inner []int // slots of nested blocks and scratch values
	dead  []int // slots nothing reads after this instruction
	// For profiles: the name of the pattern that the instruction stands for,
	// the bytes of weights it reads beside slots, and, where that is not all
	// of the slots that it reads and writes, what it moves.
	pattern string
	weight  int64
	moves   func(f *frame) int64
}

// A lowerer turns an op of one kind into an instruction. It reads constant
// parameters once, here, and resolves the others to slots.
type lowerer func(l *lowering, op *mil.Op) (instr, error)

// lowerers has one entry for every operator that the interpreter executes.
var lowerers = joinLowerers(
	elementwiseLowerers, activationLowerers, reductionLowerers, linearLowerers, normLowerers, convLowerers, quantizeLowerers, sortLowerers,
	movementLowerers, spatialLowerers, generatorLowerers, indexingLowerers, constexprLowerers, controlLowerers,
)

func joinLowerers(groups ...map[string]lowerer) map[string]lowerer {
	m := map[string]lowerer{}
	for _, g := range groups {
		for k, v := range g {
			m[k] = v
		}
	}
	return m
}

// in resolves the input called param to a slot; -1 if it is unbound and has
// no default.
func (l *lowering) in(op *mil.Op, param string) (int, error) {
	if v := op.In(param); v != nil {
		return l.slot(v)
	}
	c := l.infer(op).Const(param)
	if c == nil {
		return -1, nil
	}
	return l.constSlot(c)
}

// must is in for an input that has to be there.
func (l *lowering) must(op *mil.Op, param string) (int, error) {
	s, err := l.in(op, param)
	if err == nil && s < 0 {
		err = fmt.Errorf("input %s is missing", param)
	}
	return s, err
}
