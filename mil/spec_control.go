package mil

import "fmt"

// Control flow and states.

func stateParam(name string) Param { p := req(name, Movable); p.State = true; return p }

var controlSpecs = []OpSpec{
	op("read_state", "a copy of the state's contents as they are now", func(c *Infer) ([]Type, error) {
		return one(c.T("input")), nil
	}, stateParam("input")).from(CoreML8),
	noOutputs(op("write_state", "replace the state's contents", func(c *Infer) ([]Type, error) {
		if s, d := c.T("input"), c.T("data"); !d.Compatible(s) {
			return nil, fmt.Errorf("data is %v, the state holds %v", d, s)
		}
		return nil, nil
	}, stateParam("input"), req("data", Movable)).from(CoreML8)),
	nested(op("cond", "the outputs of the first block if pred holds, else of the second", inferCond, req("pred", Bools))),
	nested(op("while_loop", "run the second block on the loop variables while the first returns true", inferWhile,
		req("loop_vars", AnyDType).variadic())),
}

func noOutputs(s OpSpec) OpSpec { s.NoOutputs = true; return s }
func nested(s OpSpec) OpSpec    { s.NumBlocks = 2; return s }

// twoBlocks checks the number of nested blocks.
func (c *Infer) twoBlocks() error {
	if len(c.Op.Blocks) != 2 {
		return fmt.Errorf("has %d nested blocks, want 2", len(c.Op.Blocks))
	}
	return nil
}

func inferCond(c *Infer) ([]Type, error) {
	if err := c.twoBlocks(); err != nil {
		return nil, err
	}
	a, b := c.Op.Blocks[0].Outputs, c.Op.Blocks[1].Outputs
	if len(a) != len(b) {
		return nil, fmt.Errorf("the branches have %d and %d outputs", len(a), len(b))
	}
	if len(c.Op.Blocks[0].Inputs)+len(c.Op.Blocks[1].Inputs) > 0 {
		return nil, fmt.Errorf("a branch has block inputs")
	}
	out := make([]Type, len(a))
	for i := range a {
		if !TypesCompatible(a[i].Type, b[i].Type) {
			return nil, fmt.Errorf("output %d is %v in one branch and %v in the other", i, a[i].Type, b[i].Type)
		}
		out[i] = a[i].Type
	}
	return out, nil
}

func inferWhile(c *Infer) ([]Type, error) {
	if err := c.twoBlocks(); err != nil {
		return nil, err
	}
	vars, test, body := c.Op.Ins("loop_vars"), c.Op.Blocks[0], c.Op.Blocks[1]
	if len(test.Inputs) != len(vars) || len(body.Inputs) != len(vars) || len(body.Outputs) != len(vars) {
		return nil, fmt.Errorf("%d loop variables, but the blocks take %d and %d and return %d",
			len(vars), len(test.Inputs), len(body.Inputs), len(body.Outputs))
	}
	if len(test.Outputs) != 1 {
		return nil, fmt.Errorf("the condition returns %d values, want one", len(test.Outputs))
	}
	if t, ok := test.Outputs[0].Tensor(); !ok || t.DType != Bool || t.NumElements() != 1 {
		return nil, fmt.Errorf("the condition is %v, want one bool", test.Outputs[0].Type)
	}
	out := make([]Type, len(vars))
	for i, v := range vars {
		for _, u := range []*Value{test.Inputs[i], body.Inputs[i], body.Outputs[i]} {
			if !TypesCompatible(v.Type, u.Type) {
				return nil, fmt.Errorf("loop variable %d is %v outside and %v inside", i, v.Type, u.Type)
			}
		}
		out[i] = body.Inputs[i].Type
	}
	return out, nil
}
