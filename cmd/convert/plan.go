package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
)

// printPlan shows what a conversion would write, for eyes.
func (s *session) printPlan(p *conversion.PlanReport) {
	t := newTable(table.Row{"chunk", "layers", "function", "tokens", "ops", "weights"}, 4, 5, 6)
	var total int64
	for _, ch := range p.Chunks {
		for i, f := range ch.Functions {
			row := table.Row{"", "", f.Name, f.Tokens, f.Ops, ""}
			if i == 0 {
				row[0], row[1], row[5] = ch.Name, fmt.Sprintf("%d-%d", ch.Layers[0], ch.Layers[1]), megabytes(ch.Weights)
			}
			t.AppendRow(row)
		}
		total += ch.Weights
	}
	s.printTable(t)
	var cut []string
	for _, ch := range p.Chunks {
		cut = append(cut, fmt.Sprintf("%d-%d", ch.Layers[0], ch.Layers[1]))
	}
	fmt.Fprintf(s.stdout, "\n%s, %s, context %d, %s cache, %s: --layers %s, %s of weights\n",
		p.Architecture, plural(p.Layers, "layer"), p.Context, p.KV, p.Compute, strings.Join(cut, ","), megabytes(total))
	for _, x := range p.Tables {
		fmt.Fprintf(s.stdout, "%s %v, %s\n", x.File, x.Shape, megabytes(x.Bytes))
	}
	for _, ch := range p.Chunks {
		fmt.Fprintf(s.stdout, "\n%s\n", ch.Name)
		s.printPorts(ch.Functions)
	}
	fmt.Fprintln(s.stdout)
	s.printReads("a token reads", p.Roofline.Classes, p.Roofline.Total)
	fmt.Fprintf(s.stdout, "\n%s a token; %g GB/s allow at most %.1f tokens/s\n", megabytes(p.Roofline.Total), p.Roofline.Bandwidth, p.Roofline.Tokens)
}

// printPorts lists what functions take and return.
func (s *session) printPorts(functions []conversion.PlanFunction) {
	for _, f := range functions {
		fmt.Fprintf(s.stdout, "  %s\n", f.Name)
		for _, side := range []struct {
			what  string
			ports []chunking.Port
		}{{"in", f.Inputs}, {"state", f.States}, {"out", f.Outputs}} {
			for _, q := range side.ports {
				line := fmt.Sprintf("    %-5s  %-24s  %s %s", side.what, q.Name, q.DType, strings.Join(strings.Fields(fmt.Sprint(q.Shape)), " "))
				if q.Norm == "post" {
					line += ", after the final norm"
				}
				fmt.Fprintln(s.stdout, line)
			}
		}
	}
}

// printReads lists the bytes that are read, the largest class first.
func (s *session) printReads(title string, classes []conversion.ClassBytes, total int64) {
	t := newTable(table.Row{title, "bytes", "share"}, 2, 3)
	classes = slices.Clone(classes)
	slices.SortStableFunc(classes, func(a, b conversion.ClassBytes) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, c := range classes {
		t.AppendRow(table.Row{c.Class, megabytes(c.Bytes), fmt.Sprintf("%.1f %%", 100*float64(c.Bytes)/float64(total))})
	}
	s.printTable(t)
}

// printDrafterPlan shows what the conversion of a drafter would write.
func (s *session) printDrafterPlan(p *conversion.DrafterPlan, bandwidth float64) {
	t := newTable(table.Row{"function", "tokens", "ops"}, 2, 3)
	for _, f := range p.Functions {
		t.AppendRow(table.Row{f.Name, f.Tokens, f.Ops})
	}
	s.printTable(t)
	fmt.Fprintf(s.stdout, "\n%s drafter, %s, context %d, %s, up to %s at a time: %s of weights\n",
		p.Drafter, plural(p.Layers, "layer"), p.Context, p.Compute, plural(p.MaxDraft, "draft"), megabytes(p.Weights))
	s.printNeeds(p.Target)
	for _, x := range p.Tables {
		fmt.Fprintf(s.stdout, "%s %v, %s\n", x.File, x.Shape, megabytes(x.Bytes))
	}
	for _, c := range p.Compressed {
		fmt.Fprintf(s.stdout, "%s: %s, %s at %.3f bits per weight\n", c.Class, c.Format, megabytes(c.Bytes), c.BPW)
	}
	for _, c := range p.Copies {
		done := "not written"
		if c.Written {
			done = "written all the same, because packages share nothing"
		}
		fmt.Fprintf(s.stdout, "%s repeats the target's %s, %s: %s\n", c.Tensor, c.Of, megabytes(c.Bytes), done)
	}
	if !p.TargetKnown {
		fmt.Fprintln(s.stdout, "give --target DIR to find tables that are the target's")
	}
	fmt.Fprintln(s.stdout)
	s.printPorts(p.Functions)
	fmt.Fprintln(s.stdout)
	what := "a draft"
	if p.Block {
		what = "a block of drafts"
	}
	s.printReads(what+" reads", p.Reads, p.Total)
	fmt.Fprintf(s.stdout, "\n%s %s, %.3g ms at %g GB/s", megabytes(p.Total), what, float64(p.Total)/bandwidth/1e6, bandwidth)
	if p.Commits > 0 {
		fmt.Fprintf(s.stdout, "; %s for every call that takes in tokens of the text", megabytes(p.Commits))
	}
	fmt.Fprintln(s.stdout)
}
