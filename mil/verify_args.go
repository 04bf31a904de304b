package mil

import "fmt"

// A violation is a finding that does not know its place yet. lenient ones are
// warnings in programs of foreign origin.
type violation struct {
	rule, value, msg string
	lenient          bool
}

func (v violation) Error() string {
	if v.value == "" {
		return v.msg
	}
	return v.value + ": " + v.msg
}

// checkArgs compares an op's bindings with the op table: what inference and
// the interpreter may rely on. strict also demands that defaults are bound
// and that parameters share element types as the table says.
func checkArgs(op *Op, s *OpSpec, opset Opset, strict bool) []error {
	c := &argCheck{op: op, spec: s, opset: opset, known: map[*Value]bool{}}
	return c.run(strict)
}

type argCheck struct {
	op    *Op
	spec  *OpSpec
	opset Opset
	known map[*Value]bool
	errs  []error
}

func (c *argCheck) fail(rule, value string, lenient bool, format string, args ...any) {
	c.errs = append(c.errs, violation{rule, value, fmt.Sprintf(format, args...), lenient})
}

func (c *argCheck) run(strict bool) []error {
	if c.spec.Since > c.opset {
		c.fail("opset", "", false, "the operator needs %v, the function has %v", c.spec.Since, c.opset)
	}
	seen := map[string]bool{}
	for _, a := range c.op.Args {
		if seen[a.Param] {
			c.fail("param", a.Param, false, "is bound twice")
			continue
		}
		seen[a.Param] = true
		p := c.spec.Param(a.Param)
		switch {
		case p == nil:
			c.fail("param", a.Param, false, "no such parameter (have %s)", paramNames(c.spec))
		case p.Since > c.opset:
			c.fail("opset", a.Param, false, "the parameter needs %v, the function has %v", p.Since, c.opset)
		default:
			c.arg(p, a.Values)
		}
	}
	for i := range c.spec.Params {
		p := &c.spec.Params[i]
		if seen[p.Name] || p.Since > c.opset {
			continue
		}
		if !p.Optional {
			c.fail("missing", p.Name, false, "the required parameter is not bound")
		} else if strict && hasDefault(p, c) {
			c.fail("default", p.Name, true, "the default must be written out (some parsers reject an op without it)")
		}
	}
	c.bindGroups()
	return c.errs
}

// hasDefault reports whether absence of p means a value. A computed default
// may turn out as none.
func hasDefault(p *Param, c *argCheck) bool {
	f, ok := p.Default.(func(*Infer) any)
	if !ok {
		return p.Default != nil
	}
	if len(c.errs) > 0 {
		return false // computing it relies on correct bindings
	}
	return f(&Infer{Op: c.op, Spec: c.spec, Opset: c.opset}) != nil
}

func (c *argCheck) arg(p *Param, vs []*Value) {
	if !p.Variadic && len(vs) != 1 {
		c.fail("param", p.Name, false, "takes one value, has %d", len(vs))
	}
	if len(vs) == 0 {
		c.fail("param", p.Name, false, "is bound to nothing")
	}
	for _, v := range vs {
		if v == nil || v.Type == nil {
			c.fail("param", p.Name, false, "is bound to a nil value")
			continue
		}
		switch t := v.Type.(type) {
		case StateType:
			if !p.State {
				c.fail("state", p.Name, false, "takes a tensor, not the state %s (read_state gives its contents)", v.Name)
			}
		case TensorType:
			if p.State {
				c.fail("state", p.Name, false, "takes a state, %s is %v", v.Name, t)
			} else if d := p.DomainAt(c.opset); !d.Has(t.DType) {
				c.fail("dtype", p.Name, false, "%s is %v, want one of %v in %v", v.Name, t, d, c.opset)
			}
		}
		if p.Const && !constKnown(v, c.known) {
			c.fail("const", p.Name, false, "%s must be known at compile time", v.Name)
		}
		if isConstexpr(c.op.Kind) && c.opset < CoreML8 && v.Const == nil {
			c.fail("const", p.Name, false, "%s is computed; before CoreML8 a constexpr takes literals only", v.Name)
		}
	}
}

// bindGroups checks that the parameters of a Bind group share an element
// type. The first bound parameter of the table gives it.
func (c *argCheck) bindGroups() {
	type lead struct {
		name  string
		dtype DType
	}
	groups := map[string]lead{}
	for i := range c.spec.Params {
		p := &c.spec.Params[i]
		group := p.Group(c.opset)
		if group == "" {
			continue
		}
		for _, v := range c.op.Ins(p.Name) {
			t, ok := tensorOf(v)
			if !ok {
				continue
			}
			g, ok := groups[group]
			if !ok {
				groups[group] = lead{p.Name, t.DType}
			} else if g.dtype != t.DType {
				lenient := g.dtype.IsFloat() && t.DType.IsFloat()
				c.fail("bind", p.Name, lenient, "is %v, but %s is %v: both must have one element type", t.DType, g.name, g.dtype)
			}
		}
	}
}

// constKnown reports whether v can be computed at compile time: a constant, a
// constexpr, or an op on such values alone.
func constKnown(v *Value, memo map[*Value]bool) bool {
	if v.Const != nil {
		return true
	}
	if v.Op == nil {
		return false
	}
	if k, ok := memo[v]; ok {
		return k
	}
	memo[v] = false // an op that feeds itself is not known
	k := len(v.Op.Blocks) == 0 && len(v.Op.Args) > 0
	for _, a := range v.Op.Args {
		for _, in := range a.Values {
			k = k && in != nil && constKnown(in, memo)
		}
	}
	memo[v] = k || isConstexpr(v.Op.Kind)
	return memo[v]
}
