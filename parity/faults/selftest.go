package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/parity"
)

// Options configures SelfTest.
type Options struct {
	// Only names the faults to inject; nil means all.
	Only []string
	// Progress, if not nil, is told which fault is being injected.
	Progress func(stage string, done, total int)
}

// Row says what became of one fault.
type Row struct {
	Fault  string `json:"fault"`
	Family Family `json:"family"`
	What   string `json:"what"`
	// Skipped: the checkpoint has nothing that the fault could break.
	Skipped bool   `json:"skipped,omitempty"`
	Gate    string `json:"gate"` // the first gate that failed, "" if none did
	Caught  bool   `json:"caught"`
	// Named is the intermediate that bisection named, Localized whether it is
	// one of those the fault must show at.
	Named     string  `json:"named,omitempty"`
	Localized bool    `json:"localized"`
	Reason    string  `json:"reason"`
	Seconds   float64 `json:"-"`

	sites []string
}

// Table is the result of SelfTest.
type Table struct {
	Checkpoint string `json:"checkpoint"`
	// FalseAlarms are gates that failed on good bundles.
	FalseAlarms []string `json:"false_alarms"`
	Rows        []Row    `json:"faults"`
}

// OK reports whether every fault was caught by a gate that should catch it
// and no gate failed on a good bundle.
func (t *Table) OK() bool {
	return len(t.FalseAlarms) == 0 && !slices.ContainsFunc(t.Rows, func(r Row) bool { return !r.Skipped && !r.Caught })
}

// Counts are the faults injected, caught, and localized among those that
// bisection can localize.
func (t *Table) Counts() (injected, caught, localizable, localized int) {
	for _, r := range t.Rows {
		if r.Skipped {
			continue
		}
		injected++
		if r.Caught {
			caught++
		}
		if len(r.sites) > 0 {
			localizable++
			if r.Localized {
				localized++
			}
		}
	}
	return
}

// SelfTest converts the checkpoint in src, whose recording golden is, and
// injects the faults of the catalog one by one. An error means that the test
// could not be run; a fault that escapes shows in the table.
func SelfTest(ctx context.Context, src, golden string, o Options) (*Table, error) {
	work, err := os.MkdirTemp("", "smelt-faults-")
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	defer os.RemoveAll(work)
	faults, err := choose(o.Only)
	if err != nil {
		return nil, err
	}
	t := &Table{Checkpoint: src, FalseAlarms: []string{}}
	run := &selfTest{ctx: ctx, src: src, golden: golden, work: work, good: map[string]string{}}
	for _, form := range forms {
		if err := run.convert(form, t); err != nil {
			return nil, err
		}
	}
	for i := range faults {
		if o.Progress != nil {
			o.Progress(faults[i].Name, i, len(faults))
		}
		row, err := run.inject(&faults[i])
		if err != nil {
			return nil, fmt.Errorf("faults: %s: %w", faults[i].Name, err)
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

func choose(only []string) ([]Fault, error) {
	all := Catalog()
	if only == nil {
		return all, nil
	}
	for _, name := range only {
		if !slices.ContainsFunc(all, func(f Fault) bool { return f.Name == name }) {
			return nil, fmt.Errorf("faults: there is no fault %q", name)
		}
	}
	return slices.DeleteFunc(all, func(f Fault) bool { return !slices.Contains(only, f.Name) }), nil
}

// form is a kind of bundle to inject faults into.
type form struct {
	name    string
	compute string
	many    bool // as many chunks as there are layers, up to 3
}

// forms are tried in this order: the first to which a fault applies gets it.
var forms = []form{{"exact", "fp32", false}, {"two chunks", "fp16", false}, {"many chunks", "fp16", true}}

type selfTest struct {
	ctx         context.Context
	src, golden string
	work        string
	tokens      int               // of the recording to use
	good        map[string]string // bundles by form
}

// convert writes a good bundle and asks all gates about it.
func (s *selfTest) convert(f form, t *Table) error {
	fns, err := chunking.ParseFunctions("decode,prefill:16,verify:4")
	if err != nil {
		return err
	}
	dir := filepath.Join(s.work, strings.ReplaceAll(f.name, " ", "-"))
	rec, err := parity.ReadGolden(s.golden)
	if err != nil {
		return err
	}
	source, err := conversion.OpenSource(s.src)
	if err != nil {
		return err
	}
	cfg := source.Model.Config()
	source.Close()
	// Past twice the window caches have wrapped and nothing new happens.
	s.tokens = min(len(rec.IDs), 2*cfg.Window+64, cfg.MaxPositions)
	opts := conversion.Options{Compute: f.compute, Functions: fns, Chunks: min(2, cfg.Layers), Context: min(cfg.MaxPositions, s.tokens+16)}
	if f.many {
		opts.Chunks, opts.Layers = 0, oneByOne(cfg.Layers)
	}
	if _, err := conversion.Convert(s.ctx, s.src, dir, opts); err != nil {
		return err
	}
	s.good[f.name] = dir
	rep, err := parity.Verify(s.ctx, dir, parity.Options{Golden: s.golden, Checkpoint: s.src, Tokens: s.tokens})
	if err != nil {
		return err
	}
	for _, id := range rep.Failed() {
		t.FalseAlarms = append(t.FalseAlarms, fmt.Sprintf("%s: %s: %s", f.name, id, rep.Gate(id).Reason))
	}
	return nil
}

// oneByOne puts the first two layers into chunks of their own.
func oneByOne(layers int) string {
	if layers < 3 {
		return fmt.Sprintf("0-%d", layers)
	}
	return fmt.Sprintf("0-1,1-2,2-%d", layers)
}

// inject breaks a copy of a good bundle and asks the gates.
func (s *selfTest) inject(f *Fault) (Row, error) {
	row := Row{Fault: f.Name, Family: f.Family, What: f.What, sites: f.Sites}
	start := time.Now()
	for _, form := range forms {
		if f.Exact != (form.compute == "fp32") {
			continue
		}
		b, err := copyBundle(s.ctx, s.good[form.name], filepath.Join(s.work, "broken"))
		if err != nil {
			return row, err
		}
		if f.Applies != nil && !f.Applies(b.contract) {
			continue
		}
		if err := f.inject(b); err != nil {
			return row, err
		}
		opts := parity.Options{Golden: s.golden, Checkpoint: s.src, Tokens: s.tokens, StopAtFailure: true, Host: f.host}
		rep, err := parity.Verify(s.ctx, b.dir, opts)
		if err != nil {
			return row, err
		}
		if failed := rep.Failed(); len(failed) > 0 {
			g := rep.Gate(failed[0])
			row.Gate, row.Reason = g.ID, g.Reason
			row.Caught = slices.Contains(f.Gates, g.ID)
			if g.Finding != nil {
				row.Named = fmt.Sprintf("%s %s %s", g.Finding.Chunk, g.Finding.Function, g.Finding.Site)
				row.Localized = localized(g.Finding, f.Sites)
			}
		}
		row.Seconds = time.Since(start).Seconds()
		return row, nil
	}
	row.Skipped = true
	return row, nil
}

// WriteText writes the table.
func (t *Table) WriteText(w io.Writer) error {
	tw := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	tw.SetStyle(style)
	tw.AppendHeader(table.Row{"fault", "family", "what goes wrong", "caught by", "named"})
	skipped := 0
	for _, r := range t.Rows {
		if r.Skipped {
			skipped++
			continue
		}
		gate := r.Gate
		switch {
		case gate == "":
			gate = "NOT CAUGHT"
		case !r.Caught:
			gate += " (unexpected)"
		}
		tw.AppendRow(table.Row{r.Fault, r.Family, r.What, gate, r.Named})
	}
	injected, caught, localizable, localized := t.Counts()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", tw.Render())
	fmt.Fprintf(&b, "%d of %d faults caught, %d of %d localized, %d do not apply to this checkpoint, %d false alarms on good bundles\n",
		caught, injected, localized, localizable, skipped, len(t.FalseAlarms))
	for _, a := range t.FalseAlarms {
		fmt.Fprintf(&b, "false alarm: %s\n", a)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// JSON is the table for machines.
func (t *Table) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(t, "", "  ")
	return append(b, '\n'), err
}
