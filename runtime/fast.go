package runtime

import (
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// A fastLowerer handles the common shapes of an operator with a dedicated
// kernel, or a pattern that ends in it; ok is false if the op is not one of
// those and the lowerer of the op table has to do.
type fastLowerer func(l *lowering, op *mil.Op) (in instr, ok bool, err error)

var fastLowerers = map[string]fastLowerer{
	"linear":  fastLinear,
	"matmul":  fastMatmul,
	"gather":  fastGather,
	"softmax": fastSoftmax,
	"add":     firstOf(fastBinary(addOp), fastInts(addOf[int32])),
	"sub":     firstOf(fastBinary(subOp), fastInts(subOf[int32])),
	"mul":     firstOf(fastBinary(mulOp), fastInts(mulOf[int32])),
	"silu":    fastUnary(kernel.Silu),
	"gelu":    fastGelu,

	"reduce_argmax": fastMax,
	"reduce_max":    fastMax,

	"read_state":  readState,
	"write_state": writeState,
}

// constants says that each of these parameters is unbound or known; anything
// else is for the general lowerer to report.
func constants(c *mil.Infer, params ...string) bool {
	for _, p := range params {
		if c.Has(p) && c.Const(p) == nil {
			return false
		}
	}
	return true
}

// firstOf tries lowerers in turn.
func firstOf(list ...fastLowerer) fastLowerer {
	return func(l *lowering, op *mil.Op) (instr, bool, error) {
		for _, f := range list {
			if in, ok, err := f(l, op); ok || err != nil {
				return in, ok, err
			}
		}
		return instr{}, false, nil
	}
}
