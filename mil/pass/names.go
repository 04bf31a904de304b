package pass

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// Names makes all names inside the functions legal and unique. Names that are
// part of the interface (functions, inputs, outputs) are left alone: an
// illegal one is an error, since callers refer to it.
func Names(p *mil.Program) error {
	for _, name := range p.Names() {
		if !mil.LegalName(name) {
			return fmt.Errorf("function name %q is not legal", name)
		}
		if err := renameFunction(p.Functions[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func renameFunction(f *mil.Function) error {
	var n mil.Namer
	fixed := map[*mil.Value]bool{}
	for what, vs := range [][]*mil.Value{f.Inputs, f.Body.Outputs} {
		for _, v := range vs {
			if fixed[v] {
				continue
			}
			fixed[v] = true
			kind := [...]string{"input", "output"}[what]
			if !mil.LegalName(v.Name) {
				return fmt.Errorf("%s name %q is not legal", kind, v.Name)
			}
			if !n.Reserve(v.Name) {
				return fmt.Errorf("%s name %q is used twice", kind, v.Name)
			}
		}
	}
	eachBlock(f.Body, func(b *mil.Block) {
		if b == f.Body {
			return
		}
		for _, v := range b.Inputs {
			v.Name = n.Unique(v.Name)
		}
	})
	eachBlock(f.Body, func(b *mil.Block) {
		for _, o := range b.Ops {
			renameOp(o, &n, fixed)
		}
	})
	return nil
}

// renameOp keeps the habit that an op with one output shares its name.
func renameOp(o *mil.Op, n *mil.Namer, fixed map[*mil.Value]bool) {
	for _, v := range o.Outputs {
		shares := v.Name == o.Name
		if !fixed[v] {
			v.Name = n.Unique(v.Name)
		}
		if shares && len(o.Outputs) == 1 {
			o.Name = v.Name
			return
		}
	}
	o.Name = n.Unique(o.Name)
}
