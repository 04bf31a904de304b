package mlpackage

import (
	"context"
	"errors"
	"fmt"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/internal/milblob"
	"github.com/smelt-go/smelt/mil"
)

// encoder turns a program into its stored form. Constants for the weight file go
// to store in the order in which the program names them.
type encoder struct {
	ctx   context.Context
	spec  int
	store func(c mil.Const, t mil.TensorType) (offset uint64, err error)
	ops   int // written so far, constants included
}

func (e *encoder) program(p *mil.Program) (*coremlproto.Program, error) {
	out := &coremlproto.Program{Version: 1, Functions: map[string]*coremlproto.Function{}}
	if p.BuildInfo != nil {
		out.Attributes = map[string]*coremlproto.Value{"buildInfo": stringMap(p.BuildInfo)}
	}
	for _, name := range p.Names() {
		f, err := e.function(name, p.Functions[name])
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", name, err)
		}
		out.Functions[name] = f
	}
	return out, nil
}

func (e *encoder) function(name string, f *mil.Function) (*coremlproto.Function, error) {
	if !mil.LegalName(name) {
		return nil, fmt.Errorf("the name is not legal (letters, digits and _; no reserved word)")
	}
	w := &functionWriter{encoder: e, f: f, uses: map[*mil.Value]*use{}, legacy: f.Opset < mil.CoreML8}
	for _, v := range f.Inputs {
		w.names.Reserve(v.Name)
	}
	w.survey(f.Body)
	out := &coremlproto.Function{Opset: f.Opset.String()}
	for _, v := range f.Inputs {
		n, err := w.named(v)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", v.Name, err)
		}
		out.Inputs = append(out.Inputs, n)
	}
	body, err := w.block(f.Body)
	if err != nil {
		return nil, err
	}
	out.BlockSpecializations = map[string]*coremlproto.Block{out.Opset: body}
	return out, nil
}

// use says what reads a value.
type use struct {
	inlined int // parameters stored as values: of constexprs, and literal ones
	named   int // everything else
}

type functionWriter struct {
	*encoder
	f      *mil.Function
	uses   map[*mil.Value]*use
	names  mil.Namer
	legacy bool // constexpr parameters are attributes
}

// literal lists the parameters of ordinary operations that Core ML reads as
// inline values only.
var literal = map[string]map[string]bool{
	"classify":     {"classes": true},
	"reshape_like": {"begins": true, "ends": true, "end_masks": true},
}

// survey counts uses and takes note of all names.
func (w *functionWriter) survey(b *mil.Block) {
	count := func(v *mil.Value) *use {
		if w.uses[v] == nil {
			w.uses[v] = &use{}
		}
		return w.uses[v]
	}
	for _, v := range b.Inputs {
		w.names.Reserve(v.Name)
	}
	for _, op := range b.Ops {
		for _, a := range op.Args {
			for _, v := range a.Values {
				if isConstexpr(op.Kind) || literal[op.Kind][a.Param] {
					count(v).inlined++
				} else {
					count(v).named++
				}
			}
		}
		for _, n := range op.Blocks {
			w.survey(n)
		}
		for _, v := range op.Outputs {
			w.names.Reserve(v.Name)
		}
	}
	for _, v := range b.Outputs {
		count(v).named++
	}
}

func (w *functionWriter) block(b *mil.Block) (*coremlproto.Block, error) {
	out := &coremlproto.Block{}
	for _, v := range b.Inputs {
		n, err := w.named(v)
		if err != nil {
			return nil, fmt.Errorf("block input %q: %w", v.Name, err)
		}
		out.Inputs = append(out.Inputs, n)
	}
	for i, op := range b.Ops {
		if err := w.ctx.Err(); err != nil {
			return nil, err
		}
		if err := w.op(op, out); err != nil {
			return nil, fmt.Errorf("op %d %s %q: %w", i, op.Kind, op.Name, err)
		}
	}
	for _, v := range b.Outputs {
		out.Outputs = append(out.Outputs, v.Name)
	}
	return out, nil
}

// maxRank is what Core ML supports for everything but constexpr parameters.
const maxRank = 5

func (w *functionWriter) named(v *mil.Value) (*coremlproto.NamedValueType, error) {
	if !mil.LegalName(v.Name) {
		return nil, fmt.Errorf("%q is not a legal name (letters, digits and _; no reserved word)", v.Name)
	}
	if t, ok := v.Tensor(); ok && t.Rank() > maxRank && !w.onlyInlined(v) {
		return nil, fmt.Errorf("%q is %v: the rank must not exceed %d", v.Name, t, maxRank)
	}
	t, err := writeType(v.Type)
	return &coremlproto.NamedValueType{Name: v.Name, Type: t}, err
}

// onlyInlined says whether a constant, or a constexpr's result, is read by nothing
// but constexprs.
func (w *functionWriter) onlyInlined(v *mil.Value) bool {
	u := w.uses[v]
	return v.Op != nil && (v.Op.IsConst() || isConstexpr(v.Op.Kind)) && u != nil && u.inlined > 0 && u.named == 0
}

// op appends an operation, after the constants it needs.
func (w *functionWriter) op(op *mil.Op, to *coremlproto.Block) error {
	switch {
	case op.IsConst():
		if len(op.Outputs) != 1 || op.Out().Const == nil {
			return errors.New("const without a value")
		}
		if w.onlyInlined(op.Out()) {
			return nil
		}
		return w.constant(op.Name, op.Out(), to)
	case isConstexpr(op.Kind):
		return w.constexpr(op, to)
	}
	out, err := w.shell(op)
	if err != nil {
		return err
	}
	for _, a := range op.Args {
		arg := &coremlproto.Argument{}
		for i, v := range a.Values {
			b, err := w.bind(op, a.Param, i, v, to)
			if err != nil {
				return fmt.Errorf("input %s: %w", a.Param, err)
			}
			arg.Arguments = append(arg.Arguments, b)
		}
		out.Inputs[a.Param] = arg
	}
	if err := w.defaults(op, out, to); err != nil {
		return err
	}
	for _, b := range op.Blocks {
		inner, err := w.block(b)
		if err != nil {
			return err
		}
		out.Blocks = append(out.Blocks, inner)
	}
	w.add(out, to)
	return nil
}

func (w *functionWriter) add(o *coremlproto.Operation, to *coremlproto.Block) {
	to.Operations = append(to.Operations, o)
	w.ops++
}

// shell makes an operation with its name and outputs.
func (w *functionWriter) shell(op *mil.Op) (*coremlproto.Operation, error) {
	name := op.Name
	if name == "" && len(op.Outputs) > 0 {
		name = op.Out().Name
	}
	if name == "" {
		return nil, errors.New("the operation has no name")
	}
	out := &coremlproto.Operation{
		Type:       op.Kind,
		Inputs:     map[string]*coremlproto.Argument{},
		Attributes: map[string]*coremlproto.Value{"name": stringValue(name)},
	}
	for _, v := range op.Outputs {
		n, err := w.named(v)
		if err != nil {
			return nil, err
		}
		out.Outputs = append(out.Outputs, n)
	}
	return out, nil
}

// bind makes one binding of an ordinary operation. An inline literal becomes a
// constant of its own, since Core ML binds ordinary inputs by name.
func (w *functionWriter) bind(op *mil.Op, param string, i int, v *mil.Value, to *coremlproto.Block) (*coremlproto.Argument_Binding, error) {
	if literal[op.Kind][param] {
		if v.Const == nil {
			return nil, errors.New("the value must be a constant")
		}
		return w.inline(v)
	}
	if v.Inline() {
		name, err := w.literal(op, param, i, v.Const, to)
		return byName(name), err
	}
	return byName(v.Name), nil
}

// literal appends a constant called <op>_<param>_<i>.
func (w *functionWriter) literal(op *mil.Op, param string, i int, c mil.Const, to *coremlproto.Block) (string, error) {
	name := w.names.Unique(fmt.Sprintf("%s_%s_%d", op.Name, param, i))
	return name, w.constant(name, &mil.Value{Name: name, Type: c.Type(), Const: c}, to)
}

// defaults binds the optional parameters that the operation leaves out but that
// have a default, because some runtimes insist on seeing them.
func (w *functionWriter) defaults(op *mil.Op, out *coremlproto.Operation, to *coremlproto.Block) error {
	infer, err := mil.NewInfer(op, w.f.Opset)
	if err != nil {
		return err
	}
	for i := range infer.Spec.Params {
		p := &infer.Spec.Params[i]
		if !p.Optional || p.Default == nil || p.Since > w.f.Opset || op.In(p.Name) != nil {
			continue
		}
		c := infer.DefaultConst(p)
		if c == nil {
			continue
		}
		if literal[op.Kind][p.Name] {
			b, err := w.inline(mil.Inline(c))
			if err != nil {
				return err
			}
			out.Inputs[p.Name] = &coremlproto.Argument{Arguments: []*coremlproto.Argument_Binding{b}}
			continue
		}
		name, err := w.literal(op, p.Name, 0, c, to)
		if err != nil {
			return fmt.Errorf("default of %s: %w", p.Name, err)
		}
		out.Inputs[p.Name] = &coremlproto.Argument{Arguments: []*coremlproto.Argument_Binding{byName(name)}}
	}
	return nil
}

func (w *functionWriter) constant(name string, v *mil.Value, to *coremlproto.Block) error {
	out, err := w.shell(&mil.Op{Kind: "const", Name: name, Outputs: []*mil.Value{v}})
	if err != nil {
		return err
	}
	if out.Attributes["val"], err = w.value(v); err != nil {
		return err
	}
	w.add(out, to)
	return nil
}

// constexpr appends a compile-time operation. Its parameters are stored in it:
// as inputs in the forms that CoreML8 introduced, as attributes in older ones.
func (w *functionWriter) constexpr(op *mil.Op, to *coremlproto.Block) error {
	out, err := w.shell(op)
	if err != nil {
		return err
	}
	attributes := w.legacy || op.Kind == "constexpr_affine_dequantize"
	for _, a := range op.Args {
		if len(a.Values) != 1 {
			return fmt.Errorf("parameter %s has %d values", a.Param, len(a.Values))
		}
		v := a.Values[0]
		switch {
		case v.Const != nil && attributes:
			if out.Attributes[a.Param], err = w.value(v); err != nil {
				return fmt.Errorf("parameter %s: %w", a.Param, err)
			}
		case v.Const != nil:
			b, err := w.inline(v)
			if err != nil {
				return fmt.Errorf("parameter %s: %w", a.Param, err)
			}
			out.Inputs[a.Param] = &coremlproto.Argument{Arguments: []*coremlproto.Argument_Binding{b}}
		case v.Op == nil || !isConstexpr(v.Op.Kind):
			return fmt.Errorf("parameter %s is %q, neither constant nor constexpr", a.Param, v.Name)
		case attributes:
			return fmt.Errorf("parameter %s is the result of %s, which needs CoreML8", a.Param, v.Op.Kind)
		default:
			out.Inputs[a.Param] = &coremlproto.Argument{Arguments: []*coremlproto.Argument_Binding{byName(v.Name)}}
		}
	}
	w.add(out, to)
	return nil
}

func (w *functionWriter) inline(v *mil.Value) (*coremlproto.Argument_Binding, error) {
	value, err := w.value(v)
	return &coremlproto.Argument_Binding{Binding: &coremlproto.Argument_Binding_Value{Value: value}}, err
}

func byName(name string) *coremlproto.Argument_Binding {
	return &coremlproto.Argument_Binding{Binding: &coremlproto.Argument_Binding_Name{Name: name}}
}

// value stores a constant: in the weight file if it is large enough, else inline.
func (w *functionWriter) value(v *mil.Value) (*coremlproto.Value, error) {
	t, err := writeType(v.Type)
	if err != nil {
		return nil, err
	}
	if list, ok := v.Type.(mil.ListType); ok {
		return listValue(t, list, v.Const)
	}
	tensor, ok := v.Type.(mil.TensorType)
	if !ok || !tensor.Equal(v.Const.Type()) {
		return nil, fmt.Errorf("%q is declared %v, its constant is %v", v.Name, v.Type, v.Const.Type())
	}
	if tensor.NumElements() == mil.Unknown {
		return nil, fmt.Errorf("constant of unknown shape %v", tensor)
	}
	if storable(tensor, w.spec) {
		at, err := w.store(v.Const, tensor)
		if err != nil {
			return nil, err
		}
		return &coremlproto.Value{Type: t, Value: &coremlproto.Value_BlobFileValue_{
			BlobFileValue: &coremlproto.Value_BlobFileValue{FileName: modelPathPrefix + weightsFile, Offset: at}}}, nil
	}
	im, err := writeImmediate(v.Const)
	return tensorValue(t, im), err
}

func tensorValue(t *coremlproto.ValueType, v *coremlproto.TensorValue) *coremlproto.Value {
	return &coremlproto.Value{Type: t, Value: &coremlproto.Value_ImmediateValue_{
		ImmediateValue: &coremlproto.Value_ImmediateValue{Value: &coremlproto.Value_ImmediateValue_Tensor{Tensor: v}}}}
}

// blobSource streams a constant into the weight file.
type blobSource struct{ mil.Const }

func (s blobSource) DType() milblob.DType { return forms[s.Type().DType].blob }
func (s blobSource) Elements() int64      { return int64(s.Type().NumElements()) }

// Ranges makes pieces of the constant readable, if they are.
func (s blobSource) Ranges() (milblob.ReadRange, bool) { return mil.Ranges(s.Const) }
