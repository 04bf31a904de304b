package pass

import "github.com/smelt-go/smelt/mil"

// DeadCode drops every op whose outputs nothing reads, in nested blocks too.
// Ops that write a state, directly or inside a block of theirs, stay. Inputs
// are part of the interface and stay as well.
func DeadCode(p *mil.Program) error {
	for _, name := range p.Names() {
		sweep(p.Functions[name].Body, map[*mil.Value]bool{})
	}
	return nil
}

// sweep removes the dead ops of b. live holds the values that are read later
// on; sweep adds what the kept ops read.
func sweep(b *mil.Block, live map[*mil.Value]bool) {
	for _, v := range b.Outputs {
		live[v] = true
	}
	kept := len(b.Ops) // b.Ops[kept:] is what stays
	for i := len(b.Ops) - 1; i >= 0; i-- {
		o := b.Ops[i]
		if !writes(o) && !anyLive(o.Outputs, live) {
			continue
		}
		for _, a := range o.Args {
			for _, v := range a.Values {
				live[v] = true
			}
		}
		for _, n := range o.Blocks {
			sweep(n, live)
		}
		kept--
		b.Ops[kept] = o
	}
	b.Ops = append([]*mil.Op(nil), b.Ops[kept:]...)
}

func anyLive(vs []*mil.Value, live map[*mil.Value]bool) bool {
	for _, v := range vs {
		if live[v] {
			return true
		}
	}
	return false
}

// writes reports whether o has an effect besides its outputs.
func writes(o *mil.Op) bool {
	if o.Kind == "write_state" {
		return true
	}
	w := false
	for _, b := range o.Blocks {
		b.Walk(func(n *mil.Op) { w = w || n.Kind == "write_state" })
	}
	return w
}
