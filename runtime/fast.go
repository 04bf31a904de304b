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
	"add":     fastBinary(addOp),
	"sub":     fastBinary(subOp),
	"mul":     fastBinary(mulOp),
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
