package mil

func (v *verifier) function(f *Function) {
	v.fn, v.op = f, nil
	v.scope, v.names = nil, nil
	v.all, v.taken, v.ops, v.known = map[*Value]bool{}, map[string]bool{}, map[string]bool{}, map[*Value]bool{}
	if !LegalName(f.Name) {
		v.report("name", true, "", "the function name %q is not legal", f.Name)
	}
	if f.Opset < CoreML5 || f.Opset > CoreML9 {
		v.report("opset", false, "", "opset %d is unknown (known: CoreML5 to CoreML9)", int(f.Opset))
		return
	}
	if f.Body == nil {
		v.report("structure", false, "", "the function has no body")
		return
	}
	if len(f.Body.Inputs) > 0 {
		v.report("structure", false, "", "the body of a function has no inputs of its own")
	}
	if !v.whole(f) {
		return
	}
	v.uses = map[*Value]*usage{}
	countUses(f.Body, v.uses)
	v.open()
	for _, in := range f.Inputs {
		v.input(in)
	}
	v.block(f.Body)
	v.outputs(f)
	v.close()
	v.stateUses(f)
}

// whole checks that no pointer which every other rule follows is nil.
func (v *verifier) whole(f *Function) bool {
	ok := true
	values := func(what string, vs []*Value) {
		for i, x := range vs {
			if x == nil || x.Type == nil {
				ok = false
				v.report("structure", false, "", "%s %d is nil or has the type nil", what, i)
			}
		}
	}
	var block func(b *Block)
	block = func(b *Block) {
		values("block input", b.Inputs)
		for i, o := range b.Ops {
			if o == nil {
				ok, v.op = false, nil
				v.report("structure", false, "", "op %d of a block is nil", i)
				continue
			}
			v.op = o
			values("output", o.Outputs)
			for _, n := range o.Blocks {
				if n == nil {
					ok = false
					v.report("structure", false, "", "a nested block is nil")
					continue
				}
				block(n)
			}
		}
		v.op = nil
		values("block output", b.Outputs)
	}
	values("function input", f.Inputs)
	block(f.Body)
	return ok
}

func countUses(b *Block, uses map[*Value]*usage) {
	use := func(v *Value) *usage {
		u := uses[v]
		if u == nil {
			u = &usage{}
			uses[v] = u
		}
		return u
	}
	b.Walk(func(o *Op) {
		for _, a := range o.Args {
			for _, v := range a.Values {
				if isConstexpr(o.Kind) {
					use(v).constexpr++
				} else {
					use(v).other++
				}
			}
		}
		for _, n := range o.Blocks {
			for _, v := range n.Outputs {
				use(v).other++
			}
		}
	})
	for _, v := range b.Outputs {
		use(v).other++
	}
}

func (v *verifier) open() {
	v.scope = append(v.scope, map[*Value]bool{})
	v.names = append(v.names, map[string]bool{})
}

func (v *verifier) close() {
	v.scope = v.scope[:len(v.scope)-1]
	v.names = v.names[:len(v.names)-1]
}

func (v *verifier) visible(x *Value) bool {
	for _, s := range v.scope {
		if s[x] {
			return true
		}
	}
	return false
}

// define enters a value of the current block. A value of another function or
// one defined twice is caught here or by undefined.
func (v *verifier) define(x *Value) {
	if v.all[x] {
		v.report("duplicate", false, x.Name, "the value is defined twice")
		return
	}
	v.all[x] = true
	v.scope[len(v.scope)-1][x] = true
	if !LegalName(x.Name) {
		if Reserved(x.Name) {
			v.report("name", true, x.Name, "the value name is a reserved word")
		} else {
			v.report("name", true, x.Name, "the value name %q is not legal (want letters, digits and _)", x.Name)
		}
	}
	clash := false
	for _, n := range v.names {
		clash = clash || n[x.Name]
	}
	switch {
	case clash:
		v.report("duplicate", false, x.Name, "another value has the same name")
	case v.taken[x.Name]:
		v.report("duplicate", true, x.Name, "another block has a value of the same name")
	}
	v.taken[x.Name] = true
	v.names[len(v.names)-1][x.Name] = true
	v.rank(x)
}

func (v *verifier) rank(x *Value) {
	t, ok := tensorOf(x)
	if !ok {
		return
	}
	for _, d := range t.Shape {
		if d < Unknown {
			v.report("type", false, x.Name, "%v has a negative dimension", t)
		} else if d == 0 {
			v.warn("type", x.Name, "%v has no elements", t)
		}
	}
	if t.Rank() <= 5 {
		return
	}
	u := v.uses[x]
	constant := x.Const != nil || x.Op != nil && isConstexpr(x.Op.Kind)
	if !constant || u != nil && u.other > 0 {
		v.report("rank", false, x.Name, "%v has rank %d, at most 5 is supported", t, t.Rank())
	}
}

func (v *verifier) block(b *Block) {
	for _, o := range b.Ops {
		v.op = o
		v.checkOp(o)
	}
	v.op = nil
}

func (v *verifier) checkOp(o *Op) {
	if o.Name == "" {
		v.report("name", true, "", "the op has no name")
	} else {
		if v.ops[o.Name] {
			v.report("duplicate", true, "", "another op has the same name")
		}
		v.ops[o.Name] = true
		if !LegalName(o.Name) {
			v.report("name", true, "", "the op name is not legal or a reserved word")
		}
	}
	for _, x := range o.Outputs {
		if x.Op != o {
			v.report("structure", false, x.Name, "the output does not point back to its op")
		}
	}
	if o.IsConst() {
		v.constOp(o)
		return
	}
	s, ok := Spec(o.Kind)
	if !ok {
		v.report("unknown", false, "", "%s", unknownOperator(o.Kind))
		v.defineAll(o)
		return
	}
	defined := true
	for _, a := range o.Args {
		for _, x := range a.Values {
			switch {
			case x == nil:
			case x.Inline():
				v.contents(x)
				v.rankInline(o, x)
			case !v.visible(x):
				defined = false
				v.report("undefined", false, a.Param, "%s is not defined before this op", x.Name)
			}
		}
	}
	if len(o.Blocks) != s.NumBlocks {
		v.report("structure", false, "", "the op has %d nested blocks, want %d", len(o.Blocks), s.NumBlocks)
		defined = false
	}
	for _, b := range o.Blocks {
		v.nested(o, b)
	}
	bad := false
	c := &argCheck{op: o, spec: s, opset: v.fn.Opset, known: v.known}
	for _, e := range c.run(!v.loose) {
		e := e.(violation)
		bad = bad || !e.lenient
		v.report(e.rule, e.lenient, e.value, "%s", e.msg)
	}
	if defined && !bad {
		v.types(o, s)
		v.emission(o)
	}
	v.defineAll(o)
}

func (v *verifier) defineAll(o *Op) {
	for _, x := range o.Outputs {
		v.define(x)
	}
}

// rankInline applies the rank limit to literals bound directly.
func (v *verifier) rankInline(o *Op, x *Value) {
	if t := x.Const.Type(); t.Rank() > 5 && !isConstexpr(o.Kind) {
		v.report("rank", false, "", "the literal %v has rank %d, at most 5 is supported", t, t.Rank())
	}
}

func (v *verifier) nested(o *Op, b *Block) {
	v.open()
	for _, x := range b.Inputs {
		v.define(x)
	}
	v.block(b)
	v.op = o
	for _, x := range b.Outputs {
		if !v.visible(x) {
			v.report("undefined", false, x.Name, "the nested block's output is not defined in it")
		}
	}
	v.close()
}

// types compares what the op declares with what the op table infers.
func (v *verifier) types(o *Op, s *OpSpec) {
	want, err := InferTypes(o, v.fn.Opset)
	if err != nil {
		v.report("infer", false, "", "%v", trimOp(err, o))
		return
	}
	if len(o.Outputs) != len(want) {
		if s.NoOutputs && len(o.Outputs) == 0 {
			return
		}
		v.report("type", false, "", "the op has %d outputs, want %d", len(o.Outputs), len(want))
		return
	}
	for i, x := range o.Outputs {
		if !TypesCompatible(want[i], x.Type) {
			v.report("type", false, x.Name, "declared %v, but the op gives %v", x.Type, want[i])
		}
	}
}

// outputs checks the function's results.
func (v *verifier) outputs(f *Function) {
	if len(f.Body.Outputs) == 0 {
		v.report("output", false, "", "the function has no outputs")
	}
	seen := map[*Value]bool{}
	for _, x := range f.Body.Outputs {
		if !v.visible(x) {
			v.report("output", false, x.Name, "the output is not defined by the function")
			continue
		}
		if seen[x] {
			v.report("output", true, x.Name, "the value is listed as an output twice")
		}
		seen[x] = true
		if a := aliases(x); a != "" {
			v.report("output", true, x.Name, "the output aliases %s (copy it with identity)", a)
		}
		t, ok := x.Type.(TensorType)
		if !ok {
			v.report("output", true, x.Name, "a function cannot return %v", x.Type)
		} else if d := interfaceDomain(f.Opset); !d.Has(t.DType) {
			v.report("output", true, x.Name, "a function returns one of %v in %v, not %v (cast it)", d, f.Opset, t.DType)
		}
	}
}

// interfaceDomain is the set of element types that a function's inputs and
// outputs may have.
func interfaceDomain(o Opset) Domain {
	d := Dom(Float32, Int32)
	if o >= CoreML6 {
		d |= Dom(Float16)
	}
	if o >= CoreML9 {
		d |= Dom(Int8)
	}
	return d
}

func (v *verifier) input(x *Value) {
	if x.Op != nil || x.Const != nil {
		v.report("structure", false, x.Name, "a function input has a producer or contents")
	}
	v.define(x)
	switch t := x.Type.(type) {
	case TensorType:
		if d := interfaceDomain(v.fn.Opset); !d.Has(t.DType) {
			v.report("input", true, x.Name, "a function takes one of %v in %v, not %v", d, v.fn.Opset, t.DType)
		}
		if t.Rank() == 0 {
			v.report("input", true, x.Name, "inputs of rank 0 are not supported (use shape [1])")
		}
	case StateType:
		v.state(x, t)
	default:
		v.report("input", true, x.Name, "a function cannot take %v", x.Type)
	}
}
