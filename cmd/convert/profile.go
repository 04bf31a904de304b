package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/smelt-go/smelt/runtime"
)

// profile is what run --profile reports: for every function that ran, the
// cost of a call by kind of op and by layer.
type profile struct {
	// Bandwidth is how fast the machine reads memory, measured after the run.
	Bandwidth float64           `json:"read_bytes_per_second"`
	Functions []functionProfile `json:"functions"`
}

type functionProfile struct {
	Name    string     `json:"name"`
	Calls   int        `json:"calls"`
	Seconds float64    `json:"seconds_per_call"`
	Kinds   []costLine `json:"kinds"`
	Layers  []costLine `json:"layers"`
}

// costLine is the part of a call that a kind of op or a layer takes.
type costLine struct {
	Name    string  `json:"name"`
	Ops     float64 `json:"ops"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the call
	Bytes   float64 `json:"bytes"`
	// OfBandwidth is bytes a second over Bandwidth. More than 1 means that
	// caches hold what is read; far less, that memory is not what limits it.
	OfBandwidth float64 `json:"of_bandwidth"`
}

var layerOf = regexp.MustCompile(`^layers[._](\d+)[._]`)

// outside names what belongs to no layer: embedding, caches, head.
const outside = "outside layers"

// newProfile adds a run's costs up. A call goes through all chunks.
func newProfile(p *runtime.Profile, chunks int, bandwidth float64) *profile {
	out := &profile{Bandwidth: bandwidth}
	ops := p.Ops()
	for len(ops) > 0 {
		name := ops[0].Function
		own := func(c runtime.OpCost) bool { return c.Function == name }
		var mine []runtime.OpCost
		for _, c := range ops {
			if own(c) {
				mine = append(mine, c)
			}
		}
		ops = slices.DeleteFunc(ops, own)
		r := p.Runs(name)
		f := functionProfile{Name: name, Calls: max(1, r.Runs/max(1, chunks))}
		f.Seconds = r.Time.Seconds() / float64(f.Calls)
		f.Kinds = f.lines(mine, bandwidth, func(c runtime.OpCost) string { return c.Kind })
		slices.SortStableFunc(f.Kinds, func(a, b costLine) int { return cmp.Compare(b.Seconds, a.Seconds) })
		f.Layers = f.lines(mine, bandwidth, func(c runtime.OpCost) string {
			if m := layerOf.FindStringSubmatch(c.Name); m != nil {
				return m[1]
			}
			return outside
		})
		slices.SortStableFunc(f.Layers, func(a, b costLine) int { return cmp.Compare(layerNumber(a.Name), layerNumber(b.Name)) })
		out.Functions = append(out.Functions, f)
	}
	return out
}

func layerNumber(name string) int {
	n, err := strconv.Atoi(name)
	if err != nil {
		return 1 << 30
	}
	return n
}

// lines groups costs by key, in order of first appearance.
func (f *functionProfile) lines(ops []runtime.OpCost, bandwidth float64, key func(runtime.OpCost) string) []costLine {
	var out []costLine
	calls := float64(f.Calls)
	for _, c := range ops {
		i := slices.IndexFunc(out, func(l costLine) bool { return l.Name == key(c) })
		if i < 0 {
			i = len(out)
			out = append(out, costLine{Name: key(c)})
		}
		l := &out[i]
		l.Ops += float64(c.Calls) / calls
		l.Seconds += c.Time.Seconds() / calls
		l.Bytes += float64(c.Bytes) / calls
	}
	for i := range out {
		l := &out[i]
		if f.Seconds > 0 {
			l.Share = l.Seconds / f.Seconds
		}
		if l.Seconds > 0 && bandwidth > 0 {
			l.OfBandwidth = l.Bytes / l.Seconds / bandwidth
		}
	}
	return out
}

// print writes the tables for people.
func (p *profile) print(w io.Writer) {
	fmt.Fprintf(w, "\nmemory is read at %.1f GB/s\n", p.Bandwidth/1e9)
	for _, f := range p.Functions {
		fmt.Fprintf(w, "\n%s: %s, %.3f ms each\n", f.Name, plural(f.Calls, "call"), 1e3*f.Seconds)
		for _, part := range []struct {
			head  string
			lines []costLine
		}{{"kind", f.Kinds}, {"layer", f.Layers}} {
			t := newTable(table.Row{part.head, "ops", "ms", "share", "MB", "GB/s", "of bandwidth"}, 2, 3, 4, 5, 6, 7)
			for _, l := range part.lines {
				rate, of := "", ""
				if l.Bytes > 0 && l.Seconds > 0 {
					rate, of = fmt.Sprintf("%.1f", l.Bytes/l.Seconds/1e9), fmt.Sprintf("%.0f %%", 100*l.OfBandwidth)
				}
				t.AppendRow(table.Row{l.Name, fmt.Sprintf("%.4g", l.Ops), fmt.Sprintf("%.3f", 1e3*l.Seconds),
					fmt.Sprintf("%.1f %%", 100*l.Share), fmt.Sprintf("%.2f", l.Bytes/1e6), rate, of})
			}
			fmt.Fprintln(w, t.Render())
		}
	}
}
