package pass

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// A Pass is one rewrite with its name for error messages.
type Pass struct {
	Name string
	Run  func(*mil.Program) error
}

// Standard is the order that suits a program as models build it in fp32:
// the residual stream is scaled by the power of two residual (1 for none),
// the program lowered to fp16 if fp16 is set, then cleaned up.
func Standard(residual float64, fp16 bool) []Pass {
	var ps []Pass
	if residual != 1 {
		ps = append(ps, Pass{"residual", func(p *mil.Program) error { return ScaleResidual(p, residual) }})
	}
	if fp16 {
		ps = append(ps, Pass{"fp16", LowerFP16})
	}
	return append(ps, Pass{"dedup", DedupConsts}, Pass{"deadcode", DeadCode}, Pass{"names", Names})
}

// Pipeline verifies p (mil.VerifyDraft), then runs the passes in order and
// verifies p again after each, so that the pass that breaks a program is the one blamed. After
// an error the program is in an undefined state.
func Pipeline(p *mil.Program, passes ...Pass) error {
	if err := mil.VerifyDraft(p); err != nil {
		return fmt.Errorf("pass: the program is wrong before any pass: %w", err)
	}
	for _, ps := range passes {
		if err := ps.Run(p); err != nil {
			return fmt.Errorf("pass: %s: %w", ps.Name, err)
		}
		if err := mil.VerifyDraft(p); err != nil {
			return fmt.Errorf("pass: the program is wrong after %s: %w", ps.Name, err)
		}
	}
	return nil
}
