package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// printJSON writes v for machines.
func (s *session) printJSON(v any) error {
	e := json.NewEncoder(s.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// sink remembers the first error of its writes: text that nobody got is an
// error, wherever it was printed.
type sink struct {
	io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	if s, ok := w.(*sink); ok {
		w = s.Writer
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// newTable makes a table without frames. Columns listed in right, counted
// from 1, hold numbers.
func newTable(header table.Row, right ...int) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Options = table.Options{SeparateHeader: true}
	style.Box.MiddleHorizontal = "-"
	style.Format.Header = text.FormatDefault
	style.Format.HeaderAlign = text.AlignDefault
	style.Format.HeaderVAlign = text.VAlignDefault
	t.SetStyle(style)
	if header != nil {
		t.AppendHeader(header)
	}
	var columns []table.ColumnConfig
	for _, n := range right {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

// printTable writes t without trailing blanks.
func (s *session) printTable(t table.Writer) {
	for line := range strings.SplitSeq(t.Render(), "\n") {
		fmt.Fprintln(s.stdout, strings.TrimRight(line, " "))
	}
}

// megabytes prints a size in decimal units, as file managers do.
func megabytes(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

// byteSize is a flag such as 950MB, 1GiB or 4096.
type byteSize int64

var units = []struct {
	suffix string
	n      float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"b", 1},
}

// Set reads a number with an optional unit.
func (b *byteSize) Set(s string) error {
	num, scale := strings.ToLower(strings.TrimSpace(s)), 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(num, u.suffix); ok {
			num, scale = strings.TrimSpace(rest), u.n
			break
		}
	}
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || !(v*scale >= 1 && v*scale < 1<<62) {
		return fmt.Errorf("want a size such as 950MB, 1GiB or 4096")
	}
	*b = byteSize(v * scale)
	return nil
}

// String prints the size; nothing if it is not set.
func (b *byteSize) String() string {
	if *b == 0 {
		return ""
	}
	return megabytes(int64(*b))
}

// Type names the flag's value in help texts.
func (b *byteSize) Type() string { return "SIZE" }

// plural prints "1 tensor", "3 tensors".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// commas prints 1445376 as 1,445,376.
func commas(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
