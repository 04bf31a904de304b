package runtime

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// Instance is one execution of a Program: it owns states and working memory.
// One goroutine may use it at a time.
type Instance struct {
	prog   *Program
	states map[string]*held
	mem    arena
	frames map[*code]*frame
	last   *frame // holds the results of the last Run
	cfg    runConfig
}

// New makes an instance. Its states are zero.
func (p *Program) New() *Instance {
	i := &Instance{prog: p, states: map[string]*held{}, frames: map[*code]*frame{}}
	i.ResetStates()
	return i
}

// Functions lists the program's functions in sorted order.
func (i *Instance) Functions() []string { return i.prog.Functions() }

// RunOption changes one call of Run.
type RunOption func(*runConfig)

type runConfig struct {
	tap     func(name string, t *Tensor)
	outputs *selection
	rounded []string
	profile *Profile
}

// WithTap calls tap with every result of every op, under its name in the
// program, as soon as it is computed and rounded. The tensor is valid during
// the call only and must not be changed. Patterns are not fused in a run with
// a tap, so that every value of the program is seen.
func WithTap(tap func(name string, t *Tensor)) RunOption {
	return func(c *runConfig) { c.tap = tap }
}

// Rounded vouches for the named inputs: their elements are values of the
// declared type, as results of a run are. Run then does not look at every
// element of them, which for a long key-value cache takes longer than the
// rest of a step. Without this option it looks, and rounds what needs it.
func Rounded(inputs ...string) RunOption {
	return func(c *runConfig) { c.rounded = inputs }
}

// Run executes function fn ("" means the default function) on the inputs in.
// Inputs must have exactly the names, element types and shapes that the
// function declares; an unknown dimension takes any size. In Typed mode the
// elements of fp16 inputs are rounded to fp16 where they are not
// representable. States are not passed: they live in the instance.
//
// The results and the map are valid until the next Run of the instance; they
// may share storage with the inputs.
func (i *Instance) Run(fn string, in map[string]*Tensor, opts ...RunOption) (map[string]*Tensor, error) {
	i.cfg = runConfig{}
	for _, o := range opts {
		o(&i.cfg)
	}
	function, err := i.prog.lookup(fn)
	if err != nil {
		return nil, err
	}
	out, err := i.run(function, in, &i.cfg)
	i.cfg = runConfig{}
	if err != nil {
		return nil, fmt.Errorf("runtime: function %s: %w", function.src.Name, err)
	}
	return out, nil
}

func (i *Instance) run(fn *function, in map[string]*Tensor, cfg *runConfig) (out map[string]*Tensor, err error) {
	c, err := fn.codeFor(i.prog, cfg.tap != nil, cfg.outputs)
	if err != nil {
		return nil, err
	}
	if i.last != nil {
		i.last.clear()
	}
	f := i.frames[c]
	if f == nil {
		f = newFrame(c, i.prog, i)
		i.frames[c] = f
	}
	i.last, f.tap, f.profile = f, cfg.tap, cfg.profile
	defer func() {
		if r := recover(); r != nil {
			name, kind := "?", "?"
			if f.cur != nil && f.cur.op != nil {
				name, kind = f.cur.op.Name, f.cur.op.Kind
			}
			out, err = nil, fmt.Errorf("op %q (%s): internal error: %v", name, kind, r)
		}
		f.tap, f.profile = nil, nil
	}()
	if err := f.bind(fn.src, c, in, cfg.rounded); err != nil {
		return nil, err
	}
	if cfg.profile != nil {
		err = cfg.profile.run(fn.src.Name, func() error { return f.exec(c.instrs) })
	} else {
		err = f.exec(c.instrs)
	}
	if err != nil {
		return nil, err
	}
	return f.collect(c)
}

// bind checks the inputs and puts them into their slots.
func (f *frame) bind(fn *mil.Function, c *code, in map[string]*Tensor, rounded []string) error {
	f.runs++
	want := 0
	for k, v := range fn.Inputs {
		s := c.inputs[k]
		if _, ok := v.Type.(mil.StateType); ok {
			f.t[s] = &f.state[v.Name].Tensor
			continue
		}
		want++
		t, ok := in[v.Name]
		if !ok || t == nil {
			return fmt.Errorf("input %q is missing", v.Name)
		}
		ty, ok := v.Type.(mil.TensorType)
		if !ok {
			return fmt.Errorf("input %q is a %v, which cannot be passed", v.Name, v.Type)
		}
		if err := checkTensor(t, ty); err != nil {
			return fmt.Errorf("input %q: %w", v.Name, err)
		}
		if f.mode == Typed && t.DType == mil.Float16 && !slices.Contains(rounded, v.Name) && !f.isF16(t.F) {
			r := f.out(s, t.DType, t.Shape...)
			copy(r.F, t.F)
			kernel.RoundF16(r.F)
			continue
		}
		f.t[s] = t
	}
	if len(in) > want {
		return unknownInputs(fn, in)
	}
	return nil
}

func unknownInputs(fn *mil.Function, in map[string]*Tensor) error {
	var bad, known []string
	for name := range in {
		v := fn.Input(name)
		if v == nil {
			bad = append(bad, name)
		} else if _, ok := v.Type.(mil.StateType); ok {
			return fmt.Errorf("%q is a state: set it with SetState", name)
		}
	}
	for _, v := range fn.Inputs {
		if _, ok := v.Type.(mil.TensorType); ok {
			known = append(known, v.Name)
		}
	}
	sort.Strings(bad)
	return fmt.Errorf("no input is called %s (the function takes %s)", strings.Join(bad, ", "), strings.Join(known, ", "))
}

// checkTensor compares t with a declared type.
func checkTensor(t *Tensor, want mil.TensorType) error {
	have := mil.TensorType{DType: t.DType, Shape: t.Shape}
	if !have.Compatible(want) {
		return fmt.Errorf("is %v, want %v", have, want)
	}
	for _, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("has the shape %v", t.Shape)
		}
	}
	n, ok := numElements(t.Shape), false
	if t.DType.IsFloat() {
		ok = len(t.F) == n && t.I == nil
	} else {
		ok = len(t.I) == n && t.F == nil
	}
	if !ok {
		return fmt.Errorf("has %d float and %d integer elements, but its type is %v", len(t.F), len(t.I), have)
	}
	return nil
}

// isF16 reports whether every element is representable in fp16.
func (f *frame) isF16(x []float32) bool {
	if len(x) < 1<<16 {
		return kernel.IsF16(x)
	}
	c := &f.check
	c.x = x
	c.bad.Store(false)
	f.pool.do(len(x), 1<<15, c)
	c.x = nil
	return !c.bad.Load()
}

// checkF16 looks for elements that are not representable in fp16.
type checkF16 struct {
	x   []float32
	bad atomic.Bool
}

func (c *checkF16) run(lo, hi int) {
	if !c.bad.Load() && !kernel.IsF16(c.x[lo:hi]) {
		c.bad.Store(true)
	}
}

// collect returns the results by name.
func (f *frame) collect(c *code) (map[string]*Tensor, error) {
	if f.results == nil {
		f.results = make(map[string]*Tensor, len(c.out))
	}
	for k, s := range c.out {
		if f.t[s] == nil {
			return nil, fmt.Errorf("output %q was not computed", c.names[k])
		}
		f.results[c.names[k]] = f.t[s]
	}
	return f.results, nil
}

// clear gives all storage back.
func (f *frame) clear() {
	for s := range f.own {
		if f.own[s].buf != nil {
			f.drop(s)
		}
	}
}
