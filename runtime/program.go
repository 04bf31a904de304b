package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// Mode selects the arithmetic.
type Mode int

const (
	// Typed rounds the result of every op to its declared type: an fp16 op
	// computes in float32 and rounds once. Gates use it.
	Typed Mode = iota
	// FP32 does not round: it shows what a program means apart from fp16.
	FP32
)

// Options configures Load.
type Options struct {
	Mode    Mode
	Threads int // 0 means GOMAXPROCS
}

// Program is a lowered program. Weights are shared by all instances.
type Program struct {
	opts   Options
	src    *mil.Program
	funcs  map[string]*function
	consts map[mil.Const]*Tensor
	pool   *pool
}

// function is one lowered entry point.
type function struct {
	src    *mil.Function
	code   []instr
	slots  int
	consts map[int]*Tensor // slots that hold constants
	inputs []int
	out    []int
}

// lowering is the state of lowering one function.
type lowering struct {
	prog  *Program
	fn    *function
	slots map[*mil.Value]int
	cslot map[mil.Const]int
}

// Load lowers every function of p.
func Load(p *mil.Program, opts Options) (*Program, error) {
	pr := &Program{opts: opts, src: p, funcs: map[string]*function{}, consts: map[mil.Const]*Tensor{}, pool: newPool(opts.Threads)}
	for _, name := range p.Names() {
		fn, err := lowerFunction(pr, p.Functions[name])
		if err != nil {
			return nil, fmt.Errorf("runtime: function %s: %w", name, err)
		}
		pr.funcs[name] = fn
	}
	return pr, nil
}

func lowerFunction(pr *Program, f *mil.Function) (*function, error) {
	fn := &function{src: f, consts: map[int]*Tensor{}}
	l := &lowering{prog: pr, fn: fn, slots: map[*mil.Value]int{}, cslot: map[mil.Const]int{}}
	for _, v := range f.Inputs {
		fn.inputs = append(fn.inputs, l.define(v))
	}
	for _, op := range f.Body.Ops {
		if op.IsConst() {
			continue
		}
		low, ok := lowerers[op.Kind]
		if !ok {
			return nil, fmt.Errorf("op %q: %s is not executable here", op.Name, op.Kind)
		}
		in, err := low(l, op)
		if err != nil {
			return nil, fmt.Errorf("op %q (%s): %w", op.Name, op.Kind, err)
		}
		in.op = op
		fn.code = append(fn.code, in)
	}
	for _, v := range f.Body.Outputs {
		s, err := l.slot(v)
		if err != nil {
			return nil, err
		}
		fn.out = append(fn.out, s)
	}
	return fn, nil
}

func (l *lowering) define(v *mil.Value) int {
	s := l.fn.slots
	l.fn.slots++
	l.slots[v] = s
	return s
}

// result defines the slot of output i of op.
func (l *lowering) result(op *mil.Op, i int) int { return l.define(op.Outputs[i]) }

// slot returns the slot that holds v.
func (l *lowering) slot(v *mil.Value) (int, error) {
	if v.Const != nil {
		return l.constSlot(v.Const)
	}
	s, ok := l.slots[v]
	if !ok {
		return 0, fmt.Errorf("value %q is used before it is defined", v.Name)
	}
	return s, nil
}

// constSlot returns a slot that holds the decoded constant.
func (l *lowering) constSlot(c mil.Const) (int, error) {
	if s, ok := l.cslot[c]; ok {
		return s, nil
	}
	t, ok := l.prog.consts[c]
	if !ok {
		var err error
		if t, err = FromConst(c); err != nil {
			return 0, err
		}
		l.prog.consts[c] = t
	}
	s := l.fn.slots
	l.fn.slots++
	l.fn.consts[s] = t
	l.cslot[c] = s
	return s, nil
}

// infer gives access to op's constant parameters and their defaults.
func (l *lowering) infer(op *mil.Op) *mil.Infer {
	c, err := mil.NewInfer(op, l.fn.src.Opset)
	if err != nil {
		return &mil.Infer{Op: op, Spec: &mil.OpSpec{}}
	}
	return c
}
