package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/smelt-go/smelt/parity"
)

// Row says what became of one fault.
type Row struct {
	Fault  string `json:"fault"`
	Family Family `json:"family"`
	What   string `json:"what"`
	// Checkpoint and Form say which bundle was broken.
	Checkpoint string `json:"checkpoint,omitempty"`
	Form       string `json:"form,omitempty"`
	// Skipped: no checkpoint has what the fault breaks.
	Skipped bool   `json:"skipped,omitempty"`
	Gate    string `json:"gate"` // the first gate that failed, "" if none did
	Caught  bool   `json:"caught"`
	// Named is where the gate saw it, Localized whether that is where the fault
	// is.
	Named     string `json:"named,omitempty"`
	Localized bool   `json:"localized"`
	Reason    string `json:"reason"`
	// LooksLike is the likeliest cause of the catalog's signatures, Recognised
	// whether it is the fault's.
	LooksLike  string           `json:"looks_like,omitempty"`
	Recognised bool             `json:"recognised"`
	Signature  parity.Signature `json:"signature,omitempty"`
	Seconds    float64          `json:"-"`

	cause       string
	localizable bool
}

// Table is the result of SelfTest.
type Table struct {
	Checkpoints []string `json:"checkpoints"`
	Good        int      `json:"good_bundles"` // that all gates were asked about
	// FalseAlarms are gates that failed on good bundles.
	FalseAlarms []string `json:"false_alarms"`
	Rows        []Row    `json:"faults"`
}

// OK reports whether every fault was caught by a gate that should catch it
// and no gate failed on a good bundle.
func (t *Table) OK() bool {
	return len(t.FalseAlarms) == 0 && !slices.ContainsFunc(t.Rows, func(r Row) bool { return !r.Skipped && !r.Caught })
}

// Counts sums a table up.
type Counts struct {
	Injected, Caught, Skipped int
	// Localized of Localizable faults were seen where they are; Recognised ones
	// were also called by their name.
	Localizable, Localized, Recognised int
}

// Counts sums the table up.
func (t *Table) Counts() Counts {
	var c Counts
	for _, r := range t.Rows {
		if r.Skipped {
			c.Skipped++
			continue
		}
		c.Injected++
		for _, x := range []struct {
			is bool
			n  *int
		}{{r.Caught, &c.Caught}, {r.localizable, &c.Localizable}, {r.localizable && r.Localized, &c.Localized}, {r.Recognised, &c.Recognised}} {
			if x.is {
				*x.n++
			}
		}
	}
	return c
}

// WriteText writes the table.
func (t *Table) WriteText(w io.Writer) error {
	tw := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	tw.SetStyle(style)
	tw.AppendHeader(table.Row{"fault", "family", "what goes wrong", "caught by", "named"})
	for _, r := range t.Rows {
		if r.Skipped {
			continue
		}
		gate := r.Gate
		switch {
		case gate == "":
			gate = "NOT CAUGHT"
		case !r.Caught:
			gate += " (unexpected)"
		}
		named := r.Named
		if named == "" {
			named = clip(r.Reason, 60)
		}
		tw.AppendRow(table.Row{r.Fault, r.Family, r.What, gate, named})
	}
	c := t.Counts()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", tw.Render())
	fmt.Fprintf(&b, "%d of %d faults caught, %d of %d localized, %d called by their name; %d good bundles of %s, %d false alarms\n",
		c.Caught, c.Injected, c.Localized, c.Localizable, c.Recognised, t.Good, strings.Join(t.Checkpoints, " and "), len(t.FalseAlarms))
	if c.Skipped > 0 {
		var names []string
		for _, r := range t.Rows {
			if r.Skipped {
				names = append(names, r.Fault)
			}
		}
		fmt.Fprintf(&b, "not injected, for want of a model that can have it: %s\n", strings.Join(names, ", "))
	}
	for _, a := range t.FalseAlarms {
		fmt.Fprintf(&b, "false alarm: %s\n", a)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes the table for documents.
func (t *Table) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| fault | family | what goes wrong | injected into | caught by | named |\n|---|---|---|---|---|---|\n")
	for _, r := range t.Rows {
		gate := r.Gate
		if !r.Caught {
			gate = "**not caught** " + gate
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s, %s | %s | %s |\n", r.Fault, r.Family, r.What, r.Checkpoint, r.Form, gate, r.Named)
	}
	c := t.Counts()
	fmt.Fprintf(&b, "\n%d of %d faults caught, %d localized, %d called by their name; %d good bundles, %d false alarms.\n",
		c.Caught, c.Injected, c.Localized, c.Recognised, t.Good, len(t.FalseAlarms))
	_, err := io.WriteString(w, b.String())
	return err
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// JSON is the table for machines.
func (t *Table) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(t, "", "  ")
	return append(b, '\n'), err
}

// Known turns a table into what parity.Diagnose looks up: for every fault the
// signatures with which it was caught.
func (t *Table) Known() []parity.KnownFault {
	var out []parity.KnownFault
	for _, r := range t.Rows {
		if r.Skipped || len(r.Signature) == 0 {
			continue
		}
		i := slices.IndexFunc(out, func(k parity.KnownFault) bool { return k.Fault == r.Fault })
		if i < 0 {
			i = len(out)
			out = append(out, parity.KnownFault{Fault: r.Fault, Cause: r.cause})
		}
		k := &out[i]
		if !slices.ContainsFunc(k.Signatures, func(s parity.Signature) bool { return fmt.Sprint(s) == fmt.Sprint(r.Signature) }) {
			k.Signatures = append(k.Signatures, r.Signature)
		}
	}
	return out
}
