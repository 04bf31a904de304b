package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/sensitivity"
)

// pin leaves tensors that a pattern names only candidates of one width and, if
// that is given, group size: PATTERN=BITS or PATTERN=BITS/GROUP.
func pin(m *sensitivity.Map, pins []string) error {
	for _, text := range pins {
		pattern, what, _ := strings.Cut(text, "=")
		b, g, grouped := strings.Cut(what, "/")
		bits, err1 := strconv.Atoi(b)
		group, err2 := 0, error(nil)
		if grouped {
			group, err2 = strconv.Atoi(g)
		}
		if err1 != nil || err2 != nil {
			return usagef("--pin %s: want PATTERN=BITS or PATTERN=BITS/GROUP", text)
		}
		paths, err := match(m, "pin", pattern)
		if err != nil {
			return err
		}
		for i := range m.Tensors {
			t := &m.Tensors[i]
			if !slices.Contains(paths, t.Path) {
				continue
			}
			t.Candidates = slices.DeleteFunc(t.Candidates, func(c sensitivity.Measurement) bool {
				return c.Bits != bits || grouped && c.GroupSize != group
			})
			if len(t.Candidates) == 0 {
				return fmt.Errorf("--pin %s: %s has no such candidate in the map", text, t.Path)
			}
		}
	}
	return nil
}

// largePart is the part of a model's parameters from which on a tensor's format
// decides about all others'.
const largePart = 0.1

// apart says what the whole would be with other formats of the largest tensor:
// where they are close, the map does not tell them apart, and models of both are
// worth a look.
func apart(m *sensitivity.Map, p *sensitivity.Problem, sol *allocate.Solution) string {
	best, text := -1, ""
	for i := range m.Tensors {
		if t := &m.Tensors[i]; float64(t.Parameters) > largePart*float64(m.Source.Parameters) && (best < 0 || t.Parameters > m.Tensors[best].Parameters) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	at := slices.IndexFunc(p.Items, func(it allocate.Item) bool { return it.Name == m.Tensors[best].Path })
	if at < 0 {
		return ""
	}
	for j, c := range p.Items[at].Candidates {
		q := p.Problem
		q.Items = slices.Clone(q.Items)
		q.Items[at].Candidates = []allocate.Candidate{c}
		s, err := allocate.Solve(q)
		if err != nil || s.Damage > 1.5*sol.Damage {
			continue // does not fit, or is far off
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%.5f with %s", s.Damage, c.Name)
		if j == sol.Choice[at] {
			text += " (chosen)"
		}
	}
	return fmt.Sprintf("%s: %s", p.Items[at].Name, text)
}
