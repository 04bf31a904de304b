package mil

// Short constructors for the parameters of the op table. A spec reads as one
// line a parameter: what it is, and whether it must be a constant.

// req is a required input that may be computed at run time.
func req(name string, d Domain) Param { return Param{Name: name, Domain: d} }

// opt is an input that may be absent; def is what is then meant (nil: absence
// itself means something).
func opt(name string, d Domain, def any) Param {
	return Param{Name: name, Domain: d, Optional: true, Default: def}
}

// attr is a required constant.
func attr(name string, d Domain) Param { return Param{Name: name, Domain: d, Const: true} }

// optAttr is an optional constant.
func optAttr(name string, d Domain, def any) Param {
	return Param{Name: name, Domain: d, Const: true, Optional: true, Default: def}
}

// bind puts p into a group of parameters that share one element type.
func (p Param) bind(group string) Param { p.Bind = group; return p }

// free lifts the binding from opset o on.
func (p Param) free(o Opset) Param { p.FreeSince = o; return p }

// wide replaces the domain from opset o on.
func (p Param) wide(d Domain, o Opset) Param { p.Wide, p.WideSince = d, o; return p }

// since marks a parameter that older opsets do not know.
func (p Param) since(o Opset) Param { p.Since = o; return p }

// variadic lets p hold several values.
func (p Param) variadic() Param { p.Variadic = true; return p }

// op describes an operator of CoreML5; later ones set Since.
func op(kind, doc string, infer func(*Infer) ([]Type, error), params ...Param) OpSpec {
	return OpSpec{Kind: kind, Since: CoreML5, Doc: doc, Params: params, Infer: infer}
}

// from sets the first opset that has the operator.
func (s OpSpec) from(o Opset) OpSpec { s.Since = o; return s }

// sameAs infers one output of the same type as param.
func sameAs(param string) func(*Infer) ([]Type, error) {
	return func(c *Infer) ([]Type, error) { return one(c.T(param)), nil }
}

// checked infers the type of x after a check of the other parameters.
func checked(check func(*Infer) error) func(*Infer) ([]Type, error) {
	return func(c *Infer) ([]Type, error) {
		if err := check(c); err != nil {
			return nil, err
		}
		return one(c.T("x")), nil
	}
}

// sameDim reports whether two dimensions agree; Unknown agrees with any.
func sameDim(a, b int) bool { return a == b || a == Unknown || b == Unknown }
