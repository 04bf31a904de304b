package mil

import (
	"maps"
	"slices"
)

// A Value is one SSA value: a function or block input, an op's output, or an
// inline literal.
type Value struct {
	Name  string // empty for an inline literal
	Type  Type
	Op    *Op   // the producer; nil for inputs and inline literals
	Const Const // the contents, if known at compile time
}

// Tensor returns the value's tensor type (the wrapped one of a state) and
// false for lists and other types.
func (v *Value) Tensor() (TensorType, bool) {
	switch t := v.Type.(type) {
	case TensorType:
		return t, true
	case StateType:
		return t.Tensor, true
	}
	return TensorType{}, false
}

// Inline reports whether v is a literal bound directly to an op's input
// rather than the output of a const op.
func (v *Value) Inline() bool { return v.Op == nil && v.Const != nil }

// Inline makes an inline literal.
func Inline(c Const) *Value { return &Value{Type: c.Type(), Const: c} }

// Arg binds the input called Param. Only variadic parameters (concat's
// values, say) hold more than one value.
type Arg struct {
	Param  string
	Values []*Value
}

// An Op applies an operator of the op table.
type Op struct {
	Kind    string
	Name    string // the "name" attribute of the file
	Args    []Arg  // in the order of the OpSpec's parameters
	Outputs []*Value
	Blocks  []*Block // nested blocks of control flow
	// Tags carries facts for passes ("residual": "norm"); it is not written
	// to files.
	Tags map[string]string
}

// In returns the single value bound to param, or nil.
func (o *Op) In(param string) *Value {
	for i := range o.Args {
		if o.Args[i].Param == param && len(o.Args[i].Values) > 0 {
			return o.Args[i].Values[0]
		}
	}
	return nil
}

// Ins returns all values bound to param.
func (o *Op) Ins(param string) []*Value {
	for i := range o.Args {
		if o.Args[i].Param == param {
			return o.Args[i].Values
		}
	}
	return nil
}

// Set binds param, replacing an earlier binding.
func (o *Op) Set(param string, values ...*Value) {
	for i := range o.Args {
		if o.Args[i].Param == param {
			o.Args[i].Values = values
			return
		}
	}
	o.Args = append(o.Args, Arg{param, values})
}

// Out is the first output.
func (o *Op) Out() *Value { return o.Outputs[0] }

// IsConst reports whether the op is a plain const.
func (o *Op) IsConst() bool { return o.Kind == "const" }

// A Block is a straight list of ops. Blocks of functions have no inputs of
// their own: they see the function's.
type Block struct {
	Inputs  []*Value
	Ops     []*Op
	Outputs []*Value
}

// A Function is one entry point of a program.
type Function struct {
	Name   string
	Opset  Opset
	Inputs []*Value // tensors and states, in order
	Body   *Block
}

// Input returns the function input called name, or nil.
func (f *Function) Input(name string) *Value {
	for _, v := range f.Inputs {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// A Program is a set of functions which may share constants: two const ops
// with the same Const (or equal contents) occupy one blob in the file.
type Program struct {
	Functions map[string]*Function
	Default   string            // default function of a multi-function program; "" means "main"
	BuildInfo map[string]string // the buildInfo attribute; nil to leave it out
}

// NewProgram makes an empty program.
func NewProgram() *Program { return &Program{Functions: map[string]*Function{}} }

// Names lists the functions in sorted order, the order of the file.
func (p *Program) Names() []string { return slices.Sorted(maps.Keys(p.Functions)) }

// Walk calls f for every op of the block, nested blocks first, in order of
// execution.
func (b *Block) Walk(f func(*Op)) {
	for _, o := range b.Ops {
		for _, n := range o.Blocks {
			n.Walk(f)
		}
		f(o)
	}
}
