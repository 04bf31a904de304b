package runtime

import "github.com/smelt-go/smelt/mil"

// A fastLowerer handles the common shapes of an operator with a dedicated
// kernel, or a pattern that ends in it; ok is false if the op is not one of
// those and the lowerer of the op table has to do.
type fastLowerer func(l *lowering, op *mil.Op) (in instr, ok bool, err error)

var fastLowerers = map[string]fastLowerer{
	"read_state":  readState,
	"write_state": writeState,
}
