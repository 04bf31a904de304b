package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// Values of nested blocks live in slots of the function. An output of cond or
// while_loop shares the storage of the block's value; counting keeps it alive.

var controlLowerers = map[string]lowerer{
	"cond":       lowerCond,
	"while_loop": lowerWhile,
}

func (l *lowering) twoBlocks(op *mil.Op) (a, b *block, err error) {
	if len(op.Blocks) != 2 {
		return nil, nil, fmt.Errorf("has %d nested blocks, want 2", len(op.Blocks))
	}
	if a, err = l.block(op.Blocks[0]); err == nil {
		b, err = l.block(op.Blocks[1])
	}
	return a, b, err
}

func lowerCond(l *lowering, op *mil.Op) (instr, error) {
	pred, err := l.must(op, "pred")
	if err != nil {
		return instr{}, err
	}
	yes, no, err := l.twoBlocks(op)
	if err != nil {
		return instr{}, err
	}
	if len(yes.out) != len(op.Outputs) || len(no.out) != len(op.Outputs) {
		return instr{}, fmt.Errorf("has %d outputs, the branches have %d and %d", len(op.Outputs), len(yes.out), len(no.out))
	}
	outs := l.results(op)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		p, err := f.truth(pred)
		if err != nil {
			return err
		}
		b := no
		if p {
			b = yes
		}
		if err := b.run(f); err != nil {
			return err
		}
		f.shareAll(outs, b.out)
		return nil
	}}, nil
}

// results defines the slots of all outputs of op.
func (l *lowering) results(op *mil.Op) []int {
	outs := make([]int, len(op.Outputs))
	for i := range outs {
		outs[i] = l.result(op, i)
	}
	return outs
}

// truth reads a bool of one element.
func (f *frame) truth(slot int) (bool, error) {
	t := f.t[slot]
	if t.DType != mil.Bool || t.Len() != 1 {
		return false, fmt.Errorf("the condition is %v, want one bool", t)
	}
	return t.I[0] != 0, nil
}

func (f *frame) shareAll(dst, src []int) {
	for i, s := range src {
		f.share(dst[i], s)
	}
}

func lowerWhile(l *lowering, op *mil.Op) (instr, error) {
	var vars []int
	for _, v := range op.Ins("loop_vars") {
		s, err := l.slot(v)
		if err != nil {
			return instr{}, err
		}
		vars = append(vars, s)
	}
	test, body, err := l.twoBlocks(op)
	if err != nil {
		return instr{}, err
	}
	n := len(vars)
	if len(test.in) != n || len(test.out) != 1 || len(body.in) != n || len(body.out) != n || len(op.Outputs) != n {
		return instr{}, fmt.Errorf("%d loop variables do not fit the blocks or the %d outputs", n, len(op.Outputs))
	}
	outs := l.results(op)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		f.shareAll(outs, vars)
		for {
			f.shareAll(test.in, outs)
			if err := test.run(f); err != nil {
				return err
			}
			if p, err := f.truth(test.out[0]); err != nil || !p {
				return err
			}
			f.shareAll(body.in, outs)
			if err := body.run(f); err != nil {
				return err
			}
			// A body may return its inputs in another order: they are other
			// slots than outs.
			f.shareAll(outs, body.out)
		}
	}}, nil
}
