package runtime

import (
	"fmt"
	"sync"

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

// String returns typed or fp32.
func (m Mode) String() string {
	if m == FP32 {
		return "fp32"
	}
	return "typed"
}

// Options configures Load.
type Options struct {
	Mode    Mode
	Threads int // 0 means GOMAXPROCS
	// NoFusion executes every op of the program as it is written, without
	// recognising patterns. Results differ by rounding only.
	NoFusion bool
}

// Program is a lowered program. It is immutable: weights are shared by all
// its instances, which may run at the same time.
type Program struct {
	opts   Options
	src    *mil.Program
	funcs  map[string]*function
	states map[string]mil.TensorType
	consts *constCache
	pool   *pool
	// The tables are reached through here, since lowerers of control flow
	// and constants use them in turn.
	table   map[string]lowerer
	fast    map[string]fastLowerer
	fusions []fusion
}

// Load lowers every function of p: constant parameters are read, values are
// resolved to slots and patterns are fused. Large constants stay where they
// are; p and the memory its constants refer to must outlive the Program.
//
// Load fails on an operator that the interpreter does not execute, naming
// function, op and kind.
func Load(p *mil.Program, opts Options) (*Program, error) {
	if opts.Mode != Typed && opts.Mode != FP32 {
		return nil, fmt.Errorf("runtime: unknown mode %d (want Typed or FP32)", opts.Mode)
	}
	pr := newProgram(p, opts)
	if err := pr.lower(); err != nil {
		return nil, err
	}
	return pr, nil
}

func newProgram(p *mil.Program, opts Options) *Program {
	return &Program{
		opts: opts, src: p,
		funcs:  map[string]*function{},
		states: map[string]mil.TensorType{},
		consts: newConstCache(),
		pool:   newPool(opts.Threads),
		table:  lowerers,
		fast:   fastLowerers,

		fusions: fusions,
	}
}

func (p *Program) lower() error {
	for _, name := range p.src.Names() {
		f := p.src.Functions[name]
		if err := p.collectStates(f); err != nil {
			return fmt.Errorf("runtime: function %s: %w", name, err)
		}
		c, err := lowerFunction(p, f, !p.opts.NoFusion, nil)
		if err != nil {
			return fmt.Errorf("runtime: function %s: %w", name, err)
		}
		p.funcs[name] = &function{src: f, code: c}
	}
	return nil
}

// collectStates checks that functions which share a state agree on its type.
func (p *Program) collectStates(f *mil.Function) error {
	for _, v := range f.Inputs {
		st, ok := v.Type.(mil.StateType)
		if !ok {
			continue
		}
		t := st.Tensor
		if t.NumElements() < 0 {
			return fmt.Errorf("state %q: %v has no fixed shape", v.Name, t)
		}
		if old, ok := p.states[v.Name]; ok && !old.Equal(t) {
			return fmt.Errorf("state %q is %v here and %v in another function", v.Name, t, old)
		}
		p.states[v.Name] = t
	}
	return nil
}

// Functions lists the program's functions in sorted order.
func (p *Program) Functions() []string { return p.src.Names() }

// Source returns the program that was loaded.
func (p *Program) Source() *mil.Program { return p.src }

// lookup finds a function; "" means the default one.
func (p *Program) lookup(name string) (*function, error) {
	if name == "" {
		if name = p.src.Default; name == "" {
			name = "main"
		}
	}
	fn, ok := p.funcs[name]
	if !ok {
		return nil, fmt.Errorf("runtime: there is no function %q (the program has %v)", name, p.Functions())
	}
	return fn, nil
}

// function is one entry point.
type function struct {
	src  *mil.Function
	code *code
	// others holds the code of runs that are not the ordinary one, lowered
	// when first asked for.
	mu     sync.Mutex
	others map[variant]*code
}

// variant names a form in which a function is lowered.
type variant struct {
	plain   bool   // every op on its own, for a tap
	outputs string // key of the selection, "" for all outputs
}

// codeFor returns the code to run: every op on its own when a tap looks on,
// and only what the selected outputs need.
func (fn *function) codeFor(p *Program, tapped bool, sel *selection) (*code, error) {
	v := variant{plain: tapped && !p.opts.NoFusion}
	if sel != nil {
		v.outputs = sel.key
	}
	if v == (variant{}) {
		return fn.code, nil
	}
	fn.mu.Lock()
	defer fn.mu.Unlock()
	if c, ok := fn.others[v]; ok {
		return c, nil
	}
	c, err := lowerFunction(p, fn.src, !v.plain && !p.opts.NoFusion, sel)
	if err != nil {
		return nil, err
	}
	if fn.others == nil {
		fn.others = map[variant]*code{}
	}
	fn.others[v] = c
	return c, nil
}

// code is a function body lowered to a flat list.
type code struct {
	instrs []instr
	slots  int
	locals int
	consts map[int]*Tensor // slots that hold constants
	inputs []int           // slots of the function's inputs, in order
	out    []int           // slots of the function's outputs
	names  []string        // their names
}
