package runtime

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// lowering is the state of lowering one function.
type lowering struct {
	prog  *Program
	fn    *mil.Function
	code  *code
	fuse  bool
	slots map[*mil.Value]int
	cslot map[*Tensor]int
	live  map[*mil.Op]bool   // ops to lower; nil means all
	uses  map[*mil.Value]int // consumers of a value, function outputs included
	users map[*mil.Value][]*mil.Op
	masks map[maskKey]int     // scratch shared by the layers of one mask
	skip  map[*mil.Op]bool    // ops that a fused instruction has absorbed
	fused map[*mil.Op]lowerer // patterns, by the op that ends them
	reads []int               // slots resolved since the current instruction began
}

// lowerFunction lowers f, or the part of it that sel selects.
func lowerFunction(pr *Program, f *mil.Function, fuse bool, sel *selection) (*code, error) {
	l := &lowering{
		prog: pr, fn: f, fuse: fuse,
		code:  &code{consts: map[int]*Tensor{}},
		slots: map[*mil.Value]int{},
		cslot: map[*Tensor]int{},
		uses:  map[*mil.Value]int{},
		users: map[*mil.Value][]*mil.Op{},
		masks: map[maskKey]int{},
		skip:  map[*mil.Op]bool{},
		fused: map[*mil.Op]lowerer{},
	}
	outputs, err := sel.of(f)
	if err != nil {
		return nil, err
	}
	if sel != nil {
		l.live = needed(f.Body, outputs)
	}
	l.countUses(f.Body, outputs)
	for _, v := range f.Inputs {
		l.code.inputs = append(l.code.inputs, l.define(v))
	}
	if l.code.instrs, err = l.ops(f.Body.Ops); err != nil {
		return nil, err
	}
	for _, v := range outputs {
		s, err := l.slot(v)
		if err != nil {
			return nil, err
		}
		l.code.out = append(l.code.out, s)
		l.code.names = append(l.code.names, v.Name)
	}
	planLifetimes(l.code)
	return l.code, nil
}

// countUses counts the consumers of values among the live ops of b.
func (l *lowering) countUses(b *mil.Block, outputs []*mil.Value) {
	for _, op := range b.Ops {
		if l.live != nil && !l.live[op] {
			continue
		}
		for _, a := range op.Args {
			for _, v := range a.Values {
				l.uses[v]++
			}
		}
		for _, nb := range op.Blocks {
			l.countUses(nb, nb.Outputs)
		}
	}
	for _, v := range outputs {
		l.uses[v]++
	}
}

// ops lowers a straight list of ops.
func (l *lowering) ops(list []*mil.Op) ([]instr, error) {
	if l.live != nil {
		list = slices.DeleteFunc(slices.Clone(list), func(op *mil.Op) bool { return !l.live[op] })
	}
	if l.fuse {
		l.patterns(list)
	}
	var out []instr
	for _, op := range list {
		// A constant costs nothing until a consumer asks for it.
		if op.IsConst() || l.skip[op] {
			continue
		}
		if isConstexpr(op) {
			continue
		}
		in, err := l.op(op)
		if err != nil {
			return nil, fmt.Errorf("op %q (%s): %w", op.Name, op.Kind, err)
		}
		out = append(out, in)
	}
	return out, nil
}

func (l *lowering) op(op *mil.Op) (instr, error) {
	outer, first := l.reads, l.code.slots
	l.reads = nil
	in, err := l.lowerOp(op)
	if err != nil {
		return instr{}, err
	}
	in.op = op
	in.reads = l.reads
	for s := first; s < l.code.slots; s++ {
		if _, isConst := l.code.consts[s]; !isConst && !contains(in.out, s) {
			in.inner = append(in.inner, s)
		}
	}
	l.reads = append(outer, l.reads...)
	return in, nil
}

func (l *lowering) lowerOp(op *mil.Op) (instr, error) {
	if low, ok := l.fused[op]; ok {
		return low(l, op)
	}
	if fast, ok := l.prog.fast[op.Kind]; ok {
		if in, ok, err := fast(l, op); err != nil || ok {
			return in, err
		}
	}
	low, ok := l.prog.table[op.Kind]
	if !ok {
		return instr{}, fmt.Errorf("the operator is not executable here")
	}
	in, err := low(l, op)
	if err != nil {
		return instr{}, err
	}
	// The outputs are those that the lowerer defined, whether or not it
	// listed them.
	in.out = in.out[:0:0]
	for _, v := range op.Outputs {
		if s, ok := l.slots[v]; ok {
			in.out = append(in.out, s)
		}
	}
	return in, nil
}

func contains(s []int, x int) bool {
	for _, v := range s {
		if v == x {
			return true
		}
	}
	return false
}

// newSlot reserves a slot.
func (l *lowering) newSlot() int {
	s := l.code.slots
	l.code.slots++
	return s
}

func (l *lowering) define(v *mil.Value) int {
	s := l.newSlot()
	l.slots[v] = s
	return s
}

// result defines the slot of output i of op.
func (l *lowering) result(op *mil.Op, i int) int { return l.define(op.Outputs[i]) }

// local reserves per-frame scratch for an instruction; see the function local.
func (l *lowering) local() int {
	l.code.locals++
	return l.code.locals - 1
}

// slot returns the slot that holds v.
func (l *lowering) slot(v *mil.Value) (int, error) {
	s, ok := l.slots[v]
	switch {
	case ok:
	case v.Const != nil:
		return l.constSlot(v.Const)
	case v.Op != nil && isConstexpr(v.Op):
		t, err := l.constexpr(v)
		if err != nil {
			return 0, err
		}
		return l.tensorSlot(t), nil
	default:
		return 0, fmt.Errorf("value %q is used before it is defined", v.Name)
	}
	l.reads = append(l.reads, s)
	return s, nil
}

// constSlot returns a slot that holds the decoded constant.
func (l *lowering) constSlot(c mil.Const) (int, error) {
	t, err := l.prog.consts.decode(c)
	if err != nil {
		return 0, err
	}
	return l.tensorSlot(t), nil
}

// tensorSlot returns the slot of a constant tensor.
func (l *lowering) tensorSlot(t *Tensor) int {
	s, ok := l.cslot[t]
	if !ok {
		s = l.newSlot()
		l.code.consts[s] = t
		l.cslot[t] = s
	}
	return s
}

// infer gives access to op's constant parameters and their defaults.
func (l *lowering) infer(op *mil.Op) *mil.Infer {
	c, err := mil.NewInfer(op, l.fn.Opset)
	if err != nil {
		return &mil.Infer{Op: op, Spec: &mil.OpSpec{}}
	}
	return c
}

// typed reports whether results are rounded to their types.
func (l *lowering) typed() bool { return l.prog.opts.Mode == Typed }

// block is a nested block: control flow fills the input slots, executes it
// and takes the output slots.
type block struct {
	in, out []int
	code    []instr
}

// block lowers a nested block of the current op. Its values live in slots of
// the enclosing function, so it may read values from outside.
func (l *lowering) block(b *mil.Block) (*block, error) {
	nb := &block{}
	for _, v := range b.Inputs {
		nb.in = append(nb.in, l.define(v))
	}
	var err error
	if nb.code, err = l.ops(b.Ops); err != nil {
		return nil, err
	}
	for _, v := range b.Outputs {
		s, err := l.slot(v)
		if err != nil {
			return nil, err
		}
		nb.out = append(nb.out, s)
	}
	return nb, nil
}
