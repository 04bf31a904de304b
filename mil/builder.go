package mil

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// Args binds an op's parameters by name. A value is a *Value, a []*Value for
// a variadic parameter, or a literal (bool, []bool, int, []int, float64,
// []float64, string or Const) that becomes a const op called
// <op>_<parameter>_0.
type Args map[string]any

// A Builder writes one function, op by op. It checks every op against the op
// table, infers its type, binds every optional parameter that has a default
// and keeps names legal and unique.
//
// The first error is latched: from then on every call does nothing and
// returns a dummy value, and Func reports the error. A model therefore needs
// no error handling between ops.
type Builder struct {
	fn     *Function
	scopes []*scope
	names  Namer
	owner  map[string]*Op // ops by name and by the names of their outputs
	outs   map[*Value]bool
	err    error
}

// scope is a block under construction. lits holds the small literals that are
// already defined in it.
type scope struct {
	block *Block
	lits  map[string]*Value
}

// NewBuilder starts a function.
func NewBuilder(name string, opset Opset) *Builder {
	b := &Builder{
		fn:    &Function{Name: name, Opset: opset, Body: &Block{}},
		owner: map[string]*Op{},
		outs:  map[*Value]bool{},
	}
	if !LegalName(name) {
		b.errorf("mil: function name %q is not legal (want letters, digits, _ and no reserved word)", name)
	}
	b.push(b.fn.Body)
	return b
}

func (b *Builder) push(blk *Block) {
	b.scopes = append(b.scopes, &scope{blk, map[string]*Value{}})
}

func (b *Builder) pop() { b.scopes = b.scopes[:len(b.scopes)-1] }

func (b *Builder) top() *scope { return b.scopes[len(b.scopes)-1] }

// Err returns the latched error.
func (b *Builder) Err() error { return b.err }

// Fail latches an error of the caller's, for model code that finds a mistake
// between two ops.
func (b *Builder) Fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *Builder) errorf(format string, args ...any) { b.Fail(fmt.Errorf(format, args...)) }

func dummy() *Value { return &Value{Name: "error", Type: T(Float16)} }

// Opset returns the opset of the function.
func (b *Builder) Opset() Opset { return b.fn.Opset }

// Input declares a tensor input. Its name is part of the model's interface
// and must be legal and unused.
func (b *Builder) Input(name string, t TensorType) *Value { return b.input(name, t) }

// State declares a state: a tensor that lives across predictions. Ops
// read_state and write_state access it.
func (b *Builder) State(name string, t TensorType) *Value { return b.input(name, StateType{t}) }

func (b *Builder) input(name string, t Type) *Value {
	if b.err != nil {
		return dummy()
	}
	if !LegalName(name) {
		b.errorf("mil: %s: input name %q is not legal (want letters, digits, _ and no reserved word)", b.fn.Name, name)
		return dummy()
	}
	if !b.names.Reserve(name) {
		b.errorf("mil: %s: input name %q is taken (declare inputs before ops)", b.fn.Name, name)
		return dummy()
	}
	v := &Value{Name: name, Type: t}
	b.fn.Inputs = append(b.fn.Inputs, v)
	return v
}

// Const makes a const op. Its contents may be lazy.
func (b *Builder) Const(name string, c Const) *Value {
	if b.err != nil {
		return dummy()
	}
	if c == nil {
		b.errorf("mil: %s: const %q has no contents", b.fn.Name, name)
		return dummy()
	}
	return b.constOp(name, c)
}

func (b *Builder) constOp(name string, c Const) *Value {
	op := &Op{Kind: "const", Name: b.names.Unique(name)}
	v := &Value{Name: op.Name, Type: c.Type(), Op: op, Const: c}
	op.Outputs = []*Value{v}
	b.add(op)
	return v
}

func (b *Builder) add(op *Op) {
	s := b.top()
	s.block.Ops = append(s.block.Ops, op)
	b.owner[op.Name] = op
	for _, v := range op.Outputs {
		b.owner[v.Name] = op
	}
}

// Op appends an op with one output and returns that. For an op without
// outputs (write_state) it returns nil.
func (b *Builder) Op(kind, name string, args Args) *Value {
	vs := b.op(kind, name, args, nil)
	if b.err != nil {
		return dummy()
	}
	switch len(vs) {
	case 0:
		return nil
	case 1:
		return vs[0]
	}
	b.errorf("mil: %s: %s %q has %d outputs (use OpN)", b.fn.Name, kind, name, len(vs))
	return dummy()
}

// OpN appends an op and returns all its outputs, called <name>_0, <name>_1, …
// if there are several. After an error it returns a long list of dummies, so
// that the caller may index it.
func (b *Builder) OpN(kind, name string, args Args) []*Value {
	vs := b.op(kind, name, args, nil)
	if b.err != nil {
		return dummies()
	}
	return vs
}

func dummies() []*Value {
	vs := make([]*Value, 256)
	for i := range vs {
		vs[i] = dummy()
	}
	return vs
}

func (b *Builder) op(kind, name string, args Args, blocks []*Block) []*Value {
	if b.err != nil {
		return nil
	}
	op := &Op{Kind: kind, Name: b.names.Unique(name), Blocks: blocks}
	fail := func(err error) []*Value {
		b.errorf("mil: %s: %s %q(%s): %w", b.fn.Name, kind, op.Name, describeArgs(args), err)
		return nil
	}
	if kind == "const" {
		return fail(errors.New("use Builder.Const"))
	}
	c, err := NewInfer(op, b.fn.Opset)
	if err != nil {
		return fail(errors.New(unknownOperator(kind)))
	}
	if err := b.bind(c, args); err != nil {
		return fail(err)
	}
	if errs := checkArgs(op, c.Spec, b.fn.Opset, true); len(errs) > 0 {
		return fail(errors.Join(errs...))
	}
	types, err := c.Spec.Infer(c)
	if err == nil {
		err = c.err
	}
	if err != nil {
		return fail(err)
	}
	for i, t := range types {
		v := &Value{Name: op.Name, Type: t, Op: op}
		if len(types) > 1 {
			v.Name = b.names.Unique(fmt.Sprintf("%s_%d", op.Name, i))
		}
		op.Outputs = append(op.Outputs, v)
	}
	b.add(op)
	return op.Outputs
}

// describeArgs prints the operand types for error messages.
func describeArgs(args Args) string {
	var s []string
	for k, a := range args {
		switch a := a.(type) {
		case *Value:
			if a == nil {
				s = append(s, k+"=nil")
			} else {
				s = append(s, fmt.Sprintf("%s=%s %v", k, a.Name, a.Type))
			}
		case []*Value:
			t := make([]string, len(a))
			for i, v := range a {
				if v != nil {
					t[i] = fmt.Sprint(v.Type)
				}
			}
			s = append(s, k+"=("+strings.Join(t, ", ")+")")
		case Const:
			s = append(s, fmt.Sprintf("%s=%v", k, a.Type()))
		default:
			s = append(s, fmt.Sprintf("%s=%v", k, a))
		}
	}
	sort.Strings(s)
	return strings.Join(s, ", ")
}

// Tag attaches a fact for passes to the op that made v.
func (b *Builder) Tag(v *Value, key, val string) {
	if b.err != nil {
		return
	}
	if v == nil || v.Op == nil {
		b.errorf("mil: %s: tag %s=%s: the value is not the output of an op", b.fn.Name, key, val)
		return
	}
	if v.Op.Tags == nil {
		v.Op.Tags = map[string]string{}
	}
	v.Op.Tags[key] = val
}

// Output makes v a function output called name and returns the value that now
// carries the name. That is v itself, renamed, unless v may not be an output
// directly: an input, a constant, a state's contents or a value that already
// is one is copied by an identity op.
func (b *Builder) Output(name string, v *Value) *Value {
	switch {
	case b.err != nil:
		return dummy()
	case v == nil:
		b.errorf("mil: %s: output %q: no value", b.fn.Name, name)
		return dummy()
	case !LegalName(name):
		b.errorf("mil: %s: output name %q is not legal (want letters, digits, _ and no reserved word)", b.fn.Name, name)
		return dummy()
	case len(b.scopes) > 1:
		b.errorf("mil: %s: output %q: inside a nested block", b.fn.Name, name)
		return dummy()
	}
	if aliases(v) != "" || b.outs[v] {
		if v = b.Op("identity", name, Args{"x": v}); b.err != nil {
			return v
		}
	}
	if v.Name != name {
		if err := b.rename(v, name); err != nil {
			b.errorf("mil: %s: output %q: %w", b.fn.Name, name, err)
			return dummy()
		}
	}
	b.outs[v] = true
	b.fn.Body.Outputs = append(b.fn.Body.Outputs, v)
	return v
}

// aliases says what v is a direct view of if it may not be a function output:
// Core ML crashes at load when an output shares storage with an input, a
// constant or a state. It is "" for every other value.
func aliases(v *Value) string {
	switch {
	case v.Op == nil && v.Const == nil:
		if _, ok := v.Type.(StateType); ok {
			return "a state"
		}
		return "an input"
	case v.Op == nil, v.Op.IsConst(), isConstexpr(v.Op.Kind):
		return "a constant"
	case v.Op.Kind == "read_state":
		return "a state"
	}
	return ""
}

// rename gives v the name, moving an internal op out of the way.
func (b *Builder) rename(v *Value, name string) error {
	if !b.names.Reserve(name) {
		old, ok := b.owner[name]
		if !ok {
			return errors.New("the name is an input's")
		}
		for _, o := range old.Outputs {
			if o.Name == name && b.outs[o] {
				return errors.New("the name is another output's")
			}
		}
		if old != v.Op {
			moved := b.names.Unique(name)
			if old.Name == name {
				old.Name = moved
			}
			for _, o := range old.Outputs {
				if o.Name == name {
					o.Name = moved
				}
			}
			b.owner[moved] = old
		}
	}
	delete(b.owner, v.Name)
	b.names.Release(v.Name)
	if len(v.Op.Outputs) == 1 {
		v.Op.Name = name
	}
	v.Name = name
	b.owner[name] = v.Op
	return nil
}

// Func returns the finished function, verified, or the first error.
func (b *Builder) Func() (*Function, error) {
	if b.err != nil {
		return nil, b.err
	}
	if err := VerifyFunction(b.fn); err != nil {
		return nil, err
	}
	return b.fn, nil
}
