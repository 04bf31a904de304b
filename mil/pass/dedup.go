package pass

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/smelt-go/smelt/mil"
)

// Keyed is a constant that knows its identity: two constants with equal keys
// have equal contents, whatever object they are. Keys are comparable values.
// It spares reading a weight only to find that it is another one's twin.
type Keyed interface{ Key() any }

// keyOf is the constant's identity: its key, else the object itself.
func keyOf(c mil.Const) any {
	if k, ok := c.(Keyed); ok {
		return k.Key()
	}
	if !reflect.TypeOf(c).Comparable() {
		return new(byte) // an identity of its own
	}
	return c
}

// Equals finds equal constants: out[i] is the index of the first constant
// that has the type and contents of cs[i]. Use it to share weights between
// functions or between chunks. Contents are compared by SHA-256, streamed,
// and only as far as needed: a constant that is the only one of its type is
// never read, and one that differs from all others in its first bytes is not
// read further.
func Equals(cs []mil.Const) ([]int, error) {
	out := make([]int, len(cs))
	byKey := map[any]int{}
	var distinct []int // one index an identity
	for i, c := range cs {
		k := keyOf(c)
		if j, ok := byKey[k]; ok && cs[j].Type().Equal(c.Type()) {
			out[i] = j
			continue
		}
		byKey[k], out[i] = i, i
		distinct = append(distinct, i)
	}
	groups := [][]int{distinct}
	for _, key := range []func(mil.Const) (string, error){typeKey, headKey, fullKey} {
		var err error
		if groups, err = refine(cs, groups, key); err != nil {
			return nil, err
		}
	}
	twin := map[int]int{}
	for _, g := range groups {
		for _, i := range g[1:] {
			twin[i] = g[0]
		}
	}
	for i, j := range out {
		if k, ok := twin[j]; ok {
			out[i] = k
		}
	}
	return out, nil
}

// refine splits groups of possibly equal constants by a key and drops those
// that are alone.
func refine(cs []mil.Const, groups [][]int, key func(mil.Const) (string, error)) ([][]int, error) {
	var out [][]int
	for _, g := range groups {
		parts := map[string][]int{}
		var order []string
		for _, i := range g {
			k, err := key(cs[i])
			if err != nil {
				return nil, err
			}
			if parts[k] == nil {
				order = append(order, k)
			}
			parts[k] = append(parts[k], i)
		}
		for _, k := range order {
			if len(parts[k]) > 1 {
				out = append(out, parts[k])
			}
		}
	}
	return out, nil
}

// headBytes is how much of a constant is compared before all of it is.
const headBytes = 4096

func typeKey(c mil.Const) (string, error) { return c.Type().String(), nil }

// headKey is the first headBytes of the contents.
func headKey(c mil.Const) (string, error) {
	if l, ok := c.(*mil.Literal); ok && l.T.DType == mil.String {
		return fmt.Sprintf("%q", l.Strs), nil
	}
	var h head
	if _, err := c.WriteTo(&h); err != nil && !h.full {
		return "", err
	}
	return string(h.b), nil
}

// head keeps the first bytes written to it and then stops the writer.
type head struct {
	b    []byte
	full bool
}

var errHeadFull = errors.New("enough")

func (h *head) Write(p []byte) (int, error) {
	if k := headBytes - len(h.b); len(p) > k {
		h.b, h.full = append(h.b, p[:k]...), true
		return k, errHeadFull
	}
	h.b = append(h.b, p...)
	return len(p), nil
}

// fullKey is the hash of the contents if headKey has not seen all of them.
func fullKey(c mil.Const) (string, error) {
	if c.Type().DType == mil.String || c.Type().NumBytes() <= headBytes {
		return "", nil
	}
	h := sha256.New()
	if _, err := c.WriteTo(h); err != nil {
		return "", err
	}
	return string(h.Sum(nil)), nil
}

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
