package runtime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/mil"
)

// selection names the outputs that a run is to compute.
type selection struct {
	names []string
	key   string
}

// Outputs makes Run compute only the named outputs of the function and what
// it writes to states; the map that Run returns holds no others. Ops that
// nothing else needs do not run: all tokens of a prompt but the last can go
// without the head of a model. With no names at all it only writes states.
//
// Options that are made once and kept cost no allocation in later runs.
func Outputs(names ...string) RunOption {
	s := &selection{names: slices.Clone(names)}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	s.key = fmt.Sprintf("%q", s.names)
	return func(c *runConfig) { c.outputs = s }
}

// of returns the selected outputs of f; a nil selection selects all.
func (s *selection) of(f *mil.Function) ([]*mil.Value, error) {
	if s == nil {
		return f.Body.Outputs, nil
	}
	var out []*mil.Value
	for _, name := range s.names {
		i := slices.IndexFunc(f.Body.Outputs, func(v *mil.Value) bool { return v.Name == name })
		if i < 0 {
			var all []string
			for _, v := range f.Body.Outputs {
				all = append(all, v.Name)
			}
			return nil, fmt.Errorf("no output is called %q (the function has %s)", name, strings.Join(all, ", "))
		}
		out = append(out, f.Body.Outputs[i])
	}
	return out, nil
}

// needed is the set of ops behind the outputs and behind writes to states,
// with all ops of their nested blocks.
func needed(b *mil.Block, outputs []*mil.Value) map[*mil.Op]bool {
	live := map[*mil.Op]bool{}
	var want func(v *mil.Value)
	var whole func(b *mil.Block)
	mark := func(op *mil.Op) {
		if live[op] {
			return
		}
		live[op] = true
		for _, a := range op.Args {
			for _, v := range a.Values {
				want(v)
			}
		}
		for _, nb := range op.Blocks {
			whole(nb)
		}
	}
	want = func(v *mil.Value) {
		if v.Op != nil {
			mark(v.Op)
		}
	}
	whole = func(b *mil.Block) {
		for _, op := range b.Ops {
			mark(op)
		}
		for _, v := range b.Outputs {
			want(v)
		}
	}
	for _, op := range b.Ops {
		if writesState(op) {
			mark(op)
		}
	}
	for _, v := range outputs {
		want(v)
	}
	return live
}

// writesState says that op or an op within it writes a state.
func writesState(op *mil.Op) bool {
	if op.Kind == "write_state" {
		return true
	}
	for _, b := range op.Blocks {
		if slices.ContainsFunc(b.Ops, writesState) {
			return true
		}
	}
	return false
}
