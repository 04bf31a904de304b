package lint

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Caveat is the sentence that every report ends with.
const Caveat = "Nothing here ran on Apple hardware: the rules are documented limits and other people's reports, for you to check on the device."

// WriteText writes the counts as a table, the findings and what they are worth.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d errors, %d warnings, %d hints\n\n", r.Path, r.Count(Error), r.Count(Warning), r.Count(Info))
	b.WriteString(r.countTable())
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n%-7s  %s  %s\n", f.Severity, f.Rule, f.Where())
		fmt.Fprintf(&b, "         %s\n         source: %s\n", f.Message, f.Source)
	}
	fmt.Fprintf(&b, "\n%s\n", Caveat)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) countTable() string {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.AppendHeader(table.Row{"chunk", "layers", "weights", "function", "ops", "constexprs", "consts"})
	var numbers []table.ColumnConfig
	for _, n := range []int{2, 3, 5, 6, 7} {
		numbers = append(numbers, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(numbers)
	for _, c := range r.Chunks {
		for i, f := range c.Functions {
			row := table.Row{"", "", "", f.Name, f.Ops, f.Constexprs, f.Consts}
			if i == 0 {
				row[0], row[2] = c.Name, megabytes(c.Weights)
				if c.Layers > 0 {
					row[1] = c.Layers
				}
			}
			t.AppendRow(row)
		}
	}
	var b strings.Builder
	for line := range strings.SplitSeq(t.Render(), "\n") {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// Where prints chunk, functions, operation and value: as much as is known.
func (f Finding) Where() string {
	s := f.Chunk
	if f.Function != "" {
		s = strings.TrimPrefix(s+" "+f.Function, " ")
	}
	if f.Kind != "" {
		s += fmt.Sprintf(": %s %q", f.Kind, f.Op)
		if f.Value != "" && f.Value != f.Op {
			s += " " + f.Value
		}
	} else if f.Value != "" {
		s += ": " + f.Value
	}
	if f.Count > 1 {
		s += fmt.Sprintf(" (and %d more)", f.Count-1)
	}
	return s
}

func megabytes(n int64) string {
	if n < 1_000_000_000 {
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}
