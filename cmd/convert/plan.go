package main

import (
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
		for _, f := range ch.Functions {
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
	fmt.Fprintln(s.stdout)
	t = newTable(table.Row{"a token reads", "bytes", "share"}, 2, 3)
	classes := slices.Clone(p.Roofline.Classes)
	slices.SortStableFunc(classes, func(a, b conversion.ClassBytes) int {
		switch {
		case a.Bytes > b.Bytes:
			return -1
		case a.Bytes < b.Bytes:
			return 1
		}
		return 0
	})
	for _, c := range classes {
		t.AppendRow(table.Row{c.Class, megabytes(c.Bytes), fmt.Sprintf("%.1f %%", 100*float64(c.Bytes)/float64(p.Roofline.Total))})
	}
	s.printTable(t)
	fmt.Fprintf(s.stdout, "\n%s a token; %g GB/s allow at most %.1f tokens/s\n", megabytes(p.Roofline.Total), p.Roofline.Bandwidth, p.Roofline.Tokens)
}
