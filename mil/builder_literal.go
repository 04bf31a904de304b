package mil

import (
	"fmt"
	"math"
	"strings"
)

// maxDedupBytes is the size up to which equal literals of one function share
// one const op.
const maxDedupBytes = 1 << 16

func isConstexpr(kind string) bool { return strings.HasPrefix(kind, "constexpr_") }

// bind resolves args and defaults in the order of the table's parameters.
func (b *Builder) bind(c *Infer, args Args) error {
	for k := range args {
		if c.Spec.Param(k) == nil {
			return fmt.Errorf("no parameter %q (have %s)", k, paramNames(c.Spec))
		}
	}
	// Values first: the types of literals depend on them.
	for i := range c.Spec.Params {
		p := &c.Spec.Params[i]
		switch a := args[p.Name].(type) {
		case *Value:
			if a == nil {
				return fmt.Errorf("%s is a nil value", p.Name)
			}
			c.Op.Set(p.Name, a)
		case []*Value:
			if !p.Variadic && len(a) != 1 {
				return fmt.Errorf("%s takes one value, got %d", p.Name, len(a))
			}
			c.Op.Set(p.Name, a...)
		case Const:
			c.Op.Set(p.Name, b.literal(c.Op, p.Name, a))
		}
	}
	for i := range c.Spec.Params {
		p := &c.Spec.Params[i]
		a, ok := args[p.Name]
		if ok && len(c.Op.Ins(p.Name)) > 0 {
			continue
		}
		if !ok {
			if !p.Optional || p.Since > c.Opset {
				continue
			}
			a = p.Default
			if f, ok := a.(func(*Infer) any); ok {
				a = f(c)
			}
			if a == nil {
				continue
			}
		}
		k, err := c.LiteralConst(p, a)
		if err != nil {
			return err
		}
		c.Op.Set(p.Name, b.literal(c.Op, p.Name, k))
	}
	sortArgs(c.Op, c.Spec)
	return nil
}

func paramNames(s *OpSpec) string {
	var n []string
	for _, p := range s.Params {
		n = append(n, p.Name)
	}
	return strings.Join(n, ", ")
}

// sortArgs puts the bindings into the order of the table.
func sortArgs(op *Op, s *OpSpec) {
	out := make([]Arg, 0, len(op.Args))
	for i := range s.Params {
		for _, a := range op.Args {
			if a.Param == s.Params[i].Name && len(a.Values) > 0 {
				out = append(out, a)
			}
		}
	}
	op.Args = out
}

// literal makes c available as a value: inline for a constexpr, otherwise
// through a const op, which equal small literals share.
func (b *Builder) literal(op *Op, param string, c Const) *Value {
	if isConstexpr(op.Kind) {
		return Inline(c)
	}
	key := ""
	if l, ok := c.(*Literal); ok && len(l.Data) <= maxDedupBytes {
		key = l.T.String() + "\x00" + string(l.Data) + "\x00" + strings.Join(l.Strs, "\x00")
		for _, s := range b.scopes {
			if v := s.lits[key]; v != nil {
				return v
			}
		}
	}
	v := b.constOp(op.Name+"_"+param+"_0", c)
	if key != "" {
		b.top().lits[key] = v
	}
	return v
}

// LiteralConst types a Go literal (bool, []bool, int, []int, float64,
// []float64, string or Const) as parameter p of the op would have it: numbers
// take the element type of p's Bind group, floats else that of x, integers
// else int32 if p allows it. A number that p's type cannot hold is an error,
// but a tiny float that would round to zero in fp16 becomes fp32 where p
// allows that and the smallest fp16 magnitude otherwise: an epsilon must not
// vanish.
func (c *Infer) LiteralConst(p *Param, a any) (Const, error) {
	dom := p.DomainAt(c.Opset)
	var v []float64
	var shape []int
	integral := true
	switch a := a.(type) {
	case Const:
		return a, nil
	case string:
		return NewStr(a), nil
	case bool:
		return NewBools(nil, a), nil
	case []bool:
		return NewBools([]int{len(a)}, a...), nil
	case int:
		v = []float64{float64(a)}
	case []int:
		v, shape = make([]float64, len(a)), []int{len(a)}
		for i, x := range a {
			v[i] = float64(x)
		}
	case float64:
		v, integral = []float64{a}, false
	case []float64:
		v, shape, integral = a, []int{len(a)}, false
	default:
		return nil, fmt.Errorf("%s: a %T is no literal", p.Name, a)
	}
	d := c.literalDType(p, dom, integral)
	switch {
	case !dom.Has(d):
		return nil, fmt.Errorf("%s takes %v, not a literal of type %v", p.Name, dom, d)
	case d.IsFloat():
		return c.floatLiteral(p, dom, d, shape, v)
	case !integral:
		return nil, fmt.Errorf("%s: a fractional literal where %v is wanted", p.Name, d)
	}
	ints := make([]int, len(v))
	for i, x := range v {
		if lo, hi := intRange(d); x < lo || x > hi {
			return nil, fmt.Errorf("%s: %v does not fit %v", p.Name, x, d)
		}
		ints[i] = int(x)
	}
	return NewInts(d, shape, ints...), nil
}

func intRange(d DType) (lo, hi float64) {
	if d == Bool {
		return 0, 1
	}
	if d.IsSigned() {
		h := math.Ldexp(1, d.Bits()-1)
		return -h, h - 1
	}
	return 0, math.Ldexp(1, d.Bits()) - 1
}

func (c *Infer) floatLiteral(p *Param, dom Domain, d DType, shape []int, v []float64) (Const, error) {
	if d == Float16 {
		tiny := false
		for _, x := range v {
			// Half of the smallest subnormal rounds to zero.
			tiny = tiny || x != 0 && math.Abs(x) <= 0x1p-25
			if math.Abs(x) >= 65520 && !math.IsInf(x, 0) {
				return nil, fmt.Errorf("%s: %v does not fit fp16", p.Name, x)
			}
		}
		if tiny && c.Spec.Alone(c.Op, p, c.Opset) && dom.Has(Float32) {
			d = Float32
		} else if tiny {
			w := make([]float64, len(v))
			for i, x := range v {
				w[i] = x
				if x != 0 && math.Abs(x) <= 0x1p-25 {
					w[i] = math.Copysign(0x1p-24, x)
				}
			}
			v = w
		}
	}
	return NewFloats(d, shape, v...), nil
}

func (c *Infer) literalDType(p *Param, dom Domain, integral bool) DType {
	if d := c.groupDType(p); d != InvalidDType && dom.Has(d) {
		return d
	}
	if integral {
		if dom.Has(Int32) {
			return Int32
		}
		for d := Bool; d < numDTypes; d++ {
			if d.IsInt() && dom.Has(d) {
				return d
			}
		}
	}
	d := c.floatDType(p)
	if !dom.Has(d) {
		for _, e := range []DType{Float32, Float16} {
			if dom.Has(e) {
				return e
			}
		}
	}
	return d
}

// groupDType is the element type that the already bound members of p's Bind
// group have.
func (c *Infer) groupDType(p *Param) DType {
	g := p.Group(c.Opset)
	if g == "" {
		return InvalidDType
	}
	for _, a := range c.Op.Args {
		q := c.Spec.Param(a.Param)
		if q == nil || q.Name == p.Name || q.Group(c.Opset) != g || len(a.Values) == 0 {
			continue
		}
		if t, ok := a.Values[0].Tensor(); ok {
			return t.DType
		}
	}
	return InvalidDType
}
