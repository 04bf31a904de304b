package parity

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Report is what Verify found.
type Report struct {
	Bundle       string    `json:"bundle"`
	Architecture string    `json:"architecture"`
	Compute      string    `json:"compute"`
	KV           string    `json:"kv"`
	Reference    []string  `json:"reference"` // where the expected results come from
	Tokens       int       `json:"tokens"`
	Noise        Num       `json:"fp16_noise"` // null if unknown
	Pass         bool      `json:"pass"`
	Gates        []*Result `json:"gates"`

	window int
}

// Failed lists the IDs of the gates that failed.
func (r *Report) Failed() []string {
	var out []string
	for _, g := range r.Gates {
		if g.Status == Fail {
			out = append(out, g.ID)
		}
	}
	return out
}

// Gate returns the result of a gate, or nil.
func (r *Report) Gate(id string) *Result {
	for _, g := range r.Gates {
		if g.ID == id {
			return g
		}
	}
	return nil
}

// WriteText writes a table and what was found out about failures.
func (r *Report) WriteText(w io.Writer) error {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.AppendHeader(table.Row{"gate", "verdict", "measured", "limit"})
	for _, g := range r.Gates {
		rows := headline(g)
		for i, n := range rows {
			id, status := "", ""
			if i == 0 {
				id, status = g.ID, string(g.Status)
			}
			limit := ""
			if n.Limit != nil {
				limit = "≤ " + short(float64(*n.Limit))
			}
			t.AppendRow(table.Row{id, status, fmt.Sprintf("%s %s", n.Name, short(float64(n.Value))), limit})
		}
		if len(rows) == 0 {
			t.AppendRow(table.Row{g.ID, g.Status, g.Reason, ""})
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, compute %s, kv %s, %d tokens\n", r.Bundle, r.Architecture, r.Compute, r.KV, r.Tokens)
	for _, s := range r.Reference {
		fmt.Fprintf(&b, "reference: %s\n", s)
	}
	fmt.Fprintf(&b, "\n%s\n\n", t.Render())
	for _, g := range r.Gates {
		switch {
		case g.Status == Fail:
			fmt.Fprintf(&b, "FAIL %s: %s\n     it proves: %s\n", g.ID, g.Reason, g.Proves)
			if g.Finding != nil {
				fmt.Fprintf(&b, "     %s\n", g.Finding)
			}
			if g.Cause != nil {
				fmt.Fprintf(&b, "     %s\n", g.Cause)
			}
		case g.Status == Pass && g.Reason != "":
			fmt.Fprintf(&b, "%s: %s\n", g.ID, g.Reason)
		}
	}
	verdict := "PASS"
	if !r.Pass {
		verdict = "FAIL: " + strings.Join(r.Failed(), ", ")
	}
	fmt.Fprintf(&b, "%s\n", verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

// headline picks the numbers for the table: those with a limit (of a long list
// the nearest to it) and the agreement; else the first few.
func headline(g *Result) []Number {
	if g.Status == Skip {
		return nil
	}
	var held []Number
	for _, n := range g.Numbers {
		if n.Limit != nil || strings.HasSuffix(n.Name, "argmax_agreement") {
			held = append(held, n)
		}
	}
	const show = 4
	if len(held) == 0 {
		return g.Numbers[:min(len(g.Numbers), show)]
	}
	for len(held) > show { // drop the one that is farthest from its limit
		far := 0
		for i, n := range held {
			if ratio(n) < ratio(held[far]) {
				far = i
			}
		}
		held = append(held[:far:far], held[far+1:]...)
	}
	return held
}

func ratio(n Number) float64 {
	if n.Value != n.Value || n.Limit == nil {
		return math.Inf(1)
	}
	if *n.Limit == 0 {
		return float64(n.Value)
	}
	return float64(n.Value / *n.Limit)
}
