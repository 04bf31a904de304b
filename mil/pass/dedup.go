package pass

import (
	"maps"

	"github.com/smelt-go/smelt/mil"
)

// DedupConsts makes equal constants one: inside a function, a const op that
// repeats an earlier one visible to it, with the same tags, is dropped; across
// functions, equal constants share one Const. Equality is exact, bit by bit.
func DedupConsts(p *mil.Program) error {
	var ops []*mil.Op
	var inline []*mil.Value
	var cs []mil.Const
	for _, name := range p.Names() {
		p.Functions[name].Body.Walk(func(o *mil.Op) {
			if o.IsConst() {
				ops = append(ops, o)
			}
			for _, a := range o.Args {
				for _, v := range a.Values {
					if v.Inline() {
						inline = append(inline, v)
					}
				}
			}
		})
	}
	for _, o := range ops {
		cs = append(cs, o.Out().Const)
	}
	for _, v := range inline {
		cs = append(cs, v.Const)
	}
	first, err := Equals(cs)
	if err != nil {
		return err
	}
	for i, o := range ops {
		o.Out().Const = cs[first[i]]
	}
	for i, v := range inline {
		v.Const = cs[first[len(ops)+i]]
	}
	class := map[*mil.Op]int{}
	for i, o := range ops {
		class[o] = first[i]
	}
	for _, name := range p.Names() {
		f := p.Functions[name]
		uses := usesOf(f)
		mergeConsts(f.Body, class, uses, nil)
	}
	return nil
}

// mergeConsts drops the repeated const ops of b. outer are the classes that
// the enclosing blocks have already defined.
func mergeConsts(b *mil.Block, class map[*mil.Op]int, uses map[*mil.Value][]use, outer []map[int][]*mil.Op) {
	mine := map[int][]*mil.Op{}
	scopes := append(outer[:len(outer):len(outer)], mine)
	kept := b.Ops[:0]
	for _, o := range b.Ops {
		for _, n := range o.Blocks {
			mergeConsts(n, class, uses, scopes)
		}
		if o.IsConst() {
			if twin := findTwin(o, class[o], scopes); twin != nil {
				for _, u := range uses[o.Out()] {
					u.set(twin.Out())
				}
				continue
			}
			mine[class[o]] = append(mine[class[o]], o)
		}
		kept = append(kept, o)
	}
	clear(b.Ops[len(kept):])
	b.Ops = kept
}

func findTwin(o *mil.Op, class int, scopes []map[int][]*mil.Op) *mil.Op {
	for _, s := range scopes {
		for _, c := range s[class] {
			if maps.Equal(c.Tags, o.Tags) {
				return c
			}
		}
	}
	return nil
}
