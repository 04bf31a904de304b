package pass

import "github.com/smelt-go/smelt/mil"

// A use is one reading of a value: operand At of parameter Param of Op, or an
// output of Block if Op is nil.
type use struct {
	op    *mil.Op
	param string
	block *mil.Block
	at    int
}

// set makes the use read v instead.
func (u use) set(v *mil.Value) {
	if u.op == nil {
		u.block.Outputs[u.at] = v
		return
	}
	u.op.Ins(u.param)[u.at] = v
}

// usesOf lists who reads each value of the function, in order of the text.
func usesOf(f *mil.Function) map[*mil.Value][]use {
	m := map[*mil.Value][]use{}
	outputs := func(b *mil.Block) {
		for i, v := range b.Outputs {
			m[v] = append(m[v], use{block: b, at: i})
		}
	}
	f.Body.Walk(func(o *mil.Op) {
		for _, a := range o.Args {
			for i, v := range a.Values {
				m[v] = append(m[v], use{op: o, param: a.Param, at: i})
			}
		}
		for _, b := range o.Blocks {
			outputs(b)
		}
	})
	outputs(f.Body)
	return m
}

// eachBlock calls f for the block and every nested one, outer ones first.
func eachBlock(b *mil.Block, f func(*mil.Block)) {
	f(b)
	for _, o := range b.Ops {
		for _, n := range o.Blocks {
			eachBlock(n, f)
		}
	}
}

// namer claims all names of the function.
func namer(f *mil.Function) *mil.Namer {
	n := &mil.Namer{}
	for _, v := range f.Inputs {
		n.Reserve(v.Name)
	}
	eachBlock(f.Body, func(b *mil.Block) {
		for _, v := range b.Inputs {
			n.Reserve(v.Name)
		}
		for _, o := range b.Ops {
			n.Reserve(o.Name)
			for _, v := range o.Outputs {
				n.Reserve(v.Name)
			}
		}
	})
	return n
}

// newConst makes a const op.
func newConst(name string, c mil.Const) *mil.Op {
	o := &mil.Op{Kind: "const", Name: name}
	o.Outputs = []*mil.Value{{Name: name, Type: c.Type(), Op: o, Const: c}}
	return o
}
