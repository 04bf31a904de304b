package mlpackage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/mil"
)

// readProgram decodes the body of a model.
func readProgram(p *coremlproto.Program, w *weights) (*mil.Program, error) {
	if err := known(p, "program"); err != nil {
		return nil, err
	}
	if p.GetVersion() != 1 {
		return nil, fmt.Errorf("program version %d, only 1 is supported", p.GetVersion())
	}
	out := mil.NewProgram()
	for _, name := range sortedKeys(p.GetAttributes()) {
		if name != "buildInfo" {
			return nil, fmt.Errorf("program attribute %q is not supported", name)
		}
		info, err := readStringMap(p.GetAttributes()[name])
		if err != nil {
			return nil, fmt.Errorf("program attribute %q: %w", name, err)
		}
		out.BuildInfo = info
	}
	if len(p.GetFunctions()) == 0 {
		return nil, errors.New("program has no functions")
	}
	for _, name := range sortedKeys(p.GetFunctions()) {
		r := functionReader{weights: w}
		f, err := r.function(name, p.GetFunctions()[name])
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", name, err)
		}
		out.Functions[name] = f
	}
	return out, nil
}

func readStringMap(v *coremlproto.Value) (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range v.GetImmediateValue().GetDictionary().GetValues() {
		key, err := scalarString(kv.GetKey())
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		value, err := scalarString(kv.GetValue())
		if err != nil {
			return nil, fmt.Errorf("value of %q: %w", key, err)
		}
		if _, dup := out[key]; dup {
			return nil, fmt.Errorf("key %q appears twice", key)
		}
		out[key] = value
	}
	return out, nil
}

// functionReader holds what the decoder of one function knows.
type functionReader struct {
	weights *weights
	scopes  []map[string]*mil.Value // innermost last
}

func (r *functionReader) function(name string, f *coremlproto.Function) (*mil.Function, error) {
	if err := errors.Join(known(f, "function"), noAttributes("function", f.GetAttributes())); err != nil {
		return nil, err
	}
	opset, err := mil.ParseOpset(f.GetOpset())
	if err != nil {
		return nil, err
	}
	block, ok := f.GetBlockSpecializations()[f.GetOpset()]
	if !ok {
		return nil, fmt.Errorf("no block for opset %s (have %s)", f.GetOpset(), strings.Join(sortedKeys(f.GetBlockSpecializations()), ", "))
	}
	if len(block.GetInputs()) > 0 {
		return nil, errors.New("the block of a function has inputs of its own")
	}
	out := &mil.Function{Name: name, Opset: opset}
	r.scopes = []map[string]*mil.Value{{}}
	for _, in := range f.GetInputs() {
		v, err := r.define(in, nil)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", in.GetName(), err)
		}
		out.Inputs = append(out.Inputs, v)
	}
	out.Body, err = r.block(block)
	return out, err
}

// define makes a value visible in the innermost scope.
func (r *functionReader) define(n *coremlproto.NamedValueType, op *mil.Op) (*mil.Value, error) {
	if err := known(n, "value"); err != nil {
		return nil, err
	}
	if n.GetName() == "" {
		return nil, errors.New("value without a name")
	}
	if r.lookup(n.GetName()) != nil {
		return nil, fmt.Errorf("value %q is defined twice", n.GetName())
	}
	t, err := readType(n.GetType())
	if err != nil {
		return nil, fmt.Errorf("value %q: %w", n.GetName(), err)
	}
	v := &mil.Value{Name: n.GetName(), Type: t, Op: op}
	r.scopes[len(r.scopes)-1][v.Name] = v
	return v, nil
}

func (r *functionReader) lookup(name string) *mil.Value {
	for _, s := range slices.Backward(r.scopes) {
		if v, ok := s[name]; ok {
			return v
		}
	}
	return nil
}

// nested decodes a block in a scope of its own.
func (r *functionReader) nested(b *coremlproto.Block) (*mil.Block, error) {
	r.scopes = append(r.scopes, map[string]*mil.Value{})
	defer func() { r.scopes = r.scopes[:len(r.scopes)-1] }()
	var inputs []*mil.Value
	for _, in := range b.GetInputs() {
		v, err := r.define(in, nil)
		if err != nil {
			return nil, fmt.Errorf("block input %q: %w", in.GetName(), err)
		}
		inputs = append(inputs, v)
	}
	out, err := r.block(b)
	if err != nil {
		return nil, err
	}
	out.Inputs = inputs
	return out, nil
}

func (r *functionReader) block(b *coremlproto.Block) (*mil.Block, error) {
	if err := errors.Join(known(b, "block"), noAttributes("block", b.GetAttributes())); err != nil {
		return nil, err
	}
	out := &mil.Block{}
	for i, o := range b.GetOperations() {
		op, err := r.op(o)
		if err != nil {
			return nil, fmt.Errorf("op %d %s: %w", i, label(o), err)
		}
		out.Ops = append(out.Ops, op)
	}
	for _, name := range b.GetOutputs() {
		v := r.lookup(name)
		if v == nil {
			return nil, fmt.Errorf("output %q is not defined", name)
		}
		out.Outputs = append(out.Outputs, v)
	}
	return out, nil
}

// label names an operation in errors.
func label(o *coremlproto.Operation) string {
	name, err := scalarString(o.GetAttributes()["name"])
	if err != nil && len(o.GetOutputs()) > 0 {
		name = o.GetOutputs()[0].GetName()
	}
	return fmt.Sprintf("%s %q", o.GetType(), name)
}

func (r *functionReader) op(o *coremlproto.Operation) (*mil.Op, error) {
	if err := known(o, "operation"); err != nil {
		return nil, err
	}
	out := &mil.Op{Kind: o.GetType()}
	attributes := map[string]*coremlproto.Value{}
	for k, v := range o.GetAttributes() {
		attributes[k] = v
	}
	if v, ok := attributes["name"]; ok {
		name, err := scalarString(v)
		if err != nil {
			return nil, fmt.Errorf("attribute name: %w", err)
		}
		out.Name = name
		delete(attributes, "name")
	}
	var constant mil.Const
	if out.IsConst() {
		t, c, err := r.weights.value(attributes["val"])
		if err != nil {
			return nil, fmt.Errorf("attribute val: %w", err)
		}
		if len(o.GetInputs()) > 0 || len(o.GetOutputs()) != 1 {
			return nil, fmt.Errorf("const with %d inputs and %d outputs", len(o.GetInputs()), len(o.GetOutputs()))
		}
		declared, err := readType(o.GetOutputs()[0].GetType())
		if err != nil {
			return nil, err
		}
		if declared.String() != t.String() {
			return nil, fmt.Errorf("value is %v, output declares %v", t, declared)
		}
		constant = c
		delete(attributes, "val")
	}
	if err := r.args(out, o, attributes); err != nil {
		return nil, err
	}
	for _, b := range o.GetBlocks() {
		inner, err := r.nested(b)
		if err != nil {
			return nil, err
		}
		out.Blocks = append(out.Blocks, inner)
	}
	for _, n := range o.GetOutputs() {
		v, err := r.define(n, out)
		if err != nil {
			return nil, err
		}
		v.Const = constant
		out.Outputs = append(out.Outputs, v)
	}
	return out, nil
}

// args binds inputs, and the attributes that carried a constexpr's parameters
// before CoreML8, in the order of the op table.
func (r *functionReader) args(out *mil.Op, o *coremlproto.Operation, attributes map[string]*coremlproto.Value) error {
	bound := map[string][]*mil.Value{}
	for _, param := range sortedKeys(o.GetInputs()) {
		arg := o.GetInputs()[param]
		if err := known(arg, "argument"); err != nil {
			return fmt.Errorf("input %s: %w", param, err)
		}
		if len(arg.GetArguments()) == 0 {
			return fmt.Errorf("input %s is bound to nothing", param)
		}
		for _, b := range arg.GetArguments() {
			v, err := r.binding(b)
			if err != nil {
				return fmt.Errorf("input %s: %w", param, err)
			}
			bound[param] = append(bound[param], v)
		}
	}
	for _, param := range sortedKeys(attributes) {
		if !isConstexpr(out.Kind) {
			return fmt.Errorf("attribute %q: only constexpr operations have attributes besides name", param)
		}
		if _, dup := bound[param]; dup {
			return fmt.Errorf("parameter %s is both an input and an attribute", param)
		}
		t, c, err := r.weights.value(attributes[param])
		if err != nil {
			return fmt.Errorf("attribute %s: %w", param, err)
		}
		bound[param] = []*mil.Value{{Type: t, Const: c}}
	}
	for _, param := range paramOrder(out.Kind, sortedKeys(bound)) {
		out.Args = append(out.Args, mil.Arg{Param: param, Values: bound[param]})
	}
	return nil
}

func (r *functionReader) binding(b *coremlproto.Argument_Binding) (*mil.Value, error) {
	switch k := b.GetBinding().(type) {
	case *coremlproto.Argument_Binding_Name:
		v := r.lookup(k.Name)
		if v == nil {
			return nil, fmt.Errorf("%q is not defined before this operation", k.Name)
		}
		return v, nil
	case *coremlproto.Argument_Binding_Value:
		t, c, err := r.weights.value(k.Value)
		if err != nil {
			return nil, err
		}
		return &mil.Value{Type: t, Const: c}, nil
	}
	return nil, errors.New("binding is empty")
}

// paramOrder sorts parameter names as the op table lists them, unknown ones last.
func paramOrder(kind string, names []string) []string {
	spec, ok := mil.Spec(kind)
	if !ok {
		return names
	}
	rank := map[string]int{}
	for i, p := range spec.Params {
		rank[p.Name] = i - len(spec.Params)
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank[a] - rank[b] })
	return names
}

func isConstexpr(kind string) bool { return strings.HasPrefix(kind, "constexpr_") }

func noAttributes(what string, attributes map[string]*coremlproto.Value) error {
	if len(attributes) > 0 {
		return fmt.Errorf("%s attribute %q is not supported", what, sortedKeys(attributes)[0])
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
