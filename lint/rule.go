package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/mil"
)

// A Rule is one row of the table. Exactly one of its checks is set; it says
// how much of a model the rule has to see.
type Rule struct {
	ID        string
	Severity  Severity
	Statement string // what a program should be like, in one line
	Source    string // who says so: a public issue, document or source file

	op       func(*reporter, *function, *mil.Op)
	function func(*reporter, *function)
	chunk    func(*reporter, *chunk)
	whole    func(*reporter, *subject)
}

// Rules returns all rules, precedents included.
func Rules() []Rule {
	return slices.Concat(validityRules, shapeRules, indexRules, stateRules, sizeRules,
		sharingRules, precisionRules, placementRules, compressionRules, precedentRules())
}

// apply runs every rule over everything it applies to.
func (s *subject) apply(rules []Rule) []Finding {
	var found []Finding
	for i := range rules {
		r := &reporter{rule: &rules[i]}
		if f := rules[i].whole; f != nil {
			f(r, s)
		}
		for _, c := range s.chunks {
			r.at = place{chunk: c.name}
			if f := rules[i].chunk; f != nil {
				f(r, c)
			}
			for _, fn := range c.functions {
				r.at = place{chunk: c.name, function: fn.Name}
				if f := rules[i].function; f != nil {
					f(r, fn)
				}
				if f := rules[i].op; f != nil {
					for _, o := range fn.ops {
						f(r, fn, o)
					}
				}
			}
		}
		found = append(found, r.found...)
	}
	return found
}

// place is where a finding is.
type place struct{ chunk, function, kind, op, value string }

// reporter collects what one rule finds.
type reporter struct {
	rule  *Rule
	at    place // of the chunk or function being checked
	found []Finding
}

// add reports a finding about the chunk or function being checked. Messages
// name no operation: that is how repetitions are recognised.
func (r *reporter) add(format string, args ...any) { r.addAt(r.at, format, args...) }

// addOp reports a finding about an operation, and maybe one of its values.
func (r *reporter) addOp(o *mil.Op, value, format string, args ...any) {
	p := r.at
	p.kind, p.op, p.value = o.Kind, o.Name, value
	r.addAt(p, format, args...)
}

// addValue reports a finding about an input, output or state.
func (r *reporter) addValue(value, format string, args ...any) {
	p := r.at
	p.value = value
	r.addAt(p, format, args...)
}

func (r *reporter) addAt(p place, format string, args ...any) {
	r.found = append(r.found, Finding{
		Severity: r.rule.Severity, Rule: r.rule.ID, Chunk: p.chunk, Function: p.function,
		Kind: p.kind, Op: p.op, Value: p.value, Count: 1,
		Message: fmt.Sprintf(format, args...), Source: r.rule.Source,
	})
}

// merge joins findings of one chunk that say the same, keeping the first place,
// and sorts by severity.
func merge(found []Finding) []Finding {
	type key struct{ rule, chunk, message string }
	at := map[key]int{}
	out := []Finding{}
	for _, f := range found {
		k := key{f.Rule, f.Chunk, f.Message}
		i, ok := at[k]
		if !ok {
			at[k] = len(out)
			out = append(out, f)
			continue
		}
		out[i].Count += f.Count
		if f.Function != "" && !slices.Contains(strings.Split(out[i].Function, ", "), f.Function) {
			out[i].Function += ", " + f.Function
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return a.Severity.rank() - b.Severity.rank() })
	return out
}
