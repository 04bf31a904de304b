package pass

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/mil"
)

// TagKeep with the value KeepFP32 keeps an op in fp32 through LowerFP16: its
// operands are cast up and its results down. On a const it keeps the const as
// it is, whoever reads it.
const (
	TagKeep  = "keep"
	KeepFP32 = "fp32"
)

// LowerFP16 turns a program built in fp32 into fp16: inputs, outputs, states,
// constants and everything between. Integers and bools stay. Constants are
// cast lazily; a scalar that fp16 would flush to zero (an epsilon) stays fp32
// where the op table lets that parameter differ from the others and becomes
// ±2^-24, the smallest magnitude, where not. A literal beyond ±65504 is an
// error at once, a weight beyond it when it is written.
//
// Result types are inferred anew.
func LowerFP16(p *mil.Program) error {
	memo := map[any]mil.Const{}
	for _, name := range p.Names() {
		f := p.Functions[name]
		if f.Opset < mil.CoreML6 {
			return fmt.Errorf("%s: fp16 inputs and outputs need CoreML6, the function has %v", name, f.Opset)
		}
		l := &lowerer{f: f, names: namer(f), memo: memo}
		if err := l.function(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// lowerer rewrites one function, op by op in order of execution, so that
// every op sees operands that are final.
type lowerer struct {
	f      *mil.Function
	names  *mil.Namer
	memo   map[any]mil.Const
	consts map[*mil.Value]*constTwins
	casts  []map[castOf]*mil.Value // inserted casts by open block
	out    []*mil.Op               // the block as rewritten so far
}

// castOf identifies a cast: of which value, to which type.
type castOf struct {
	v *mil.Value
	d mil.DType
}

func (l *lowerer) function() error {
	for _, v := range l.f.Inputs {
		v.Type = halfType(v.Type)
	}
	l.consts = planConsts(l.f)
	return l.block(l.f.Body, true)
}

// halfType replaces fp32 by fp16 in a tensor or state type.
func halfType(t mil.Type) mil.Type {
	switch t := t.(type) {
	case mil.TensorType:
		if t.DType == mil.Float32 {
			return mil.TensorType{DType: mil.Float16, Shape: t.Shape}
		}
	case mil.StateType:
		return mil.StateType{Tensor: halfType(t.Tensor).(mil.TensorType)}
	case mil.ListType:
		t.Elem = halfType(t.Elem)
		return t
	}
	return t
}

func (l *lowerer) block(b *mil.Block, top bool) error {
	outer := l.out
	l.out = nil
	l.casts = append(l.casts, map[castOf]*mil.Value{})
	for _, v := range b.Inputs {
		v.Type = halfType(v.Type)
	}
	for _, o := range b.Ops {
		if err := l.op(o); err != nil {
			return err
		}
	}
	for i, v := range b.Outputs {
		if t, ok := v.Type.(mil.TensorType); ok && t.DType == mil.Float32 && (v.Op == nil || !v.Op.IsConst()) {
			h, err := l.convert(v, mil.Float16)
			if err != nil {
				return err
			}
			if top {
				l.takeName(h, v)
			}
			b.Outputs[i] = h
		}
	}
	b.Ops = l.out
	l.out, l.casts = outer, l.casts[:len(l.casts)-1]
	return nil
}

// takeName gives v's name, which is part of the interface, to its cast h.
func (l *lowerer) takeName(h, v *mil.Value) {
	name := v.Name
	v.Name = l.names.Unique(name + "_fp32")
	if v.Op.Name == name {
		v.Op.Name = v.Name
	}
	h.Name, h.Op.Name = name, name
}

func (l *lowerer) op(o *mil.Op) error {
	if o.IsConst() {
		return l.constOp(o)
	}
	keep := o.Tags[TagKeep] == KeepFP32
	spec, ok := mil.Spec(o.Kind)
	if !ok {
		return fmt.Errorf("%s %q: unknown operator", o.Kind, o.Name)
	}
	for i := range o.Args {
		a := &o.Args[i]
		// Copy: the slice may be shared with whoever built the op.
		a.Values = append([]*mil.Value(nil), a.Values...)
		for j, v := range a.Values {
			w, err := l.operand(o, spec.Param(a.Param), v, keep)
			if err != nil {
				return fmt.Errorf("%s %q: %s: %w", o.Kind, o.Name, a.Param, err)
			}
			a.Values[j] = w
		}
	}
	if !keep {
		if err := l.dtypeParam(o, spec); err != nil {
			return err
		}
	}
	for _, b := range o.Blocks {
		if err := l.block(b, false); err != nil {
			return err
		}
	}
	if o.Kind == "constexpr_cast" && !keep {
		return l.decast(o)
	}
	types, err := mil.InferTypes(o, l.f.Opset)
	if err != nil {
		return err
	}
	for i := range min(len(types), len(o.Outputs)) {
		o.Outputs[i].Type = types[i]
	}
	l.out = append(l.out, o)
	return nil
}

// operand gives v in the type that o needs.
func (l *lowerer) operand(o *mil.Op, p *mil.Param, v *mil.Value, keep bool) (*mil.Value, error) {
	t, ok := v.Type.(mil.TensorType)
	if !ok {
		return v, nil
	}
	switch {
	case v.Inline():
		if keep || t.DType != mil.Float32 {
			return v, nil
		}
		c, err := l.castConst(o.Name, v.Const)
		if err != nil {
			return nil, err
		}
		return mil.Inline(c), nil
	case v.Op != nil && v.Op.IsConst():
		if tw := l.consts[v]; tw != nil {
			return tw.pick(wantsFull(o, p, v, l.f.Opset)), nil
		}
		return v, nil
	case keep && t.DType == mil.Float16:
		return l.convert(v, mil.Float32)
	case !keep && t.DType == mil.Float32:
		return l.convert(v, mil.Float16)
	}
	return v, nil
}

// convert appends a cast of v to d, or returns an earlier one that is visible
// here.
func (l *lowerer) convert(v *mil.Value, d mil.DType) (*mil.Value, error) {
	for _, m := range l.casts {
		if c := m[castOf{v, d}]; c != nil {
			return c, nil
		}
	}
	name := l.names.Unique(v.Name + "_" + d.String())
	to := newConst(l.names.Unique(name+"_dtype_0"), mil.NewStr(d.String()))
	o := &mil.Op{Kind: "cast", Name: name}
	o.Set("x", v)
	o.Set("dtype", to.Out())
	types, err := mil.InferTypes(o, l.f.Opset)
	if err != nil {
		return nil, err
	}
	o.Outputs = []*mil.Value{{Name: name, Type: types[0], Op: o}}
	l.out = append(l.out, to, o)
	l.casts[len(l.casts)-1][castOf{v, d}] = o.Out()
	return o.Out(), nil
}

// dtypeParam turns the element type that an op names in a string parameter
// from fp32 to fp16.
func (l *lowerer) dtypeParam(o *mil.Op, spec *mil.OpSpec) error {
	for _, param := range []string{"dtype", "output_dtype"} {
		v := o.In(param)
		if v == nil || v.Const == nil || spec.Param(param) == nil {
			continue
		}
		s, err := mil.ConstString(v.Const)
		if err != nil {
			return fmt.Errorf("%s %q: %s: %w", o.Kind, o.Name, param, err)
		}
		if s != "fp32" || o.Kind == "constexpr_cast" {
			continue
		}
		if v.Inline() {
			o.Set(param, mil.Inline(mil.NewStr("fp16")))
			continue
		}
		c := newConst(l.names.Unique(v.Name+"_fp16"), mil.NewStr("fp16"))
		l.out = append(l.out, c)
		o.Set(param, c.Out())
	}
	return nil
}

// decast replaces a constexpr_cast from fp16 to fp32 by its fp16 source.
func (l *lowerer) decast(o *mil.Op) error {
	src := o.In("source_val")
	if src == nil || src.Const == nil || len(o.Outputs) != 1 {
		return fmt.Errorf("%s %q: the source is not a literal", o.Kind, o.Name)
	}
	v := o.Out()
	o.Kind, o.Args = "const", nil
	v.Const, v.Type = src.Const, src.Const.Type()
	l.out = append(l.out, o)
	return nil
}

// smallScalar makes a scalar of type t, which must be fp16 or fp32, without
// flushing x to zero.
func smallScalar(t mil.TensorType, x float64) mil.Const {
	if t.DType == mil.Float16 && vanishes(x) {
		x = math.Copysign(0x1p-24, x)
	}
	return mil.NewFloats(t.DType, t.Shape, x)
}

// vanishes reports whether fp16 rounds a non-zero x to zero.
func vanishes(x float64) bool { return x != 0 && math.Abs(x) <= 0x1p-25 }
