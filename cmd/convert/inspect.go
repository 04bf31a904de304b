package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/inspect"
	"github.com/smelt-go/smelt/models"
)

func (s *session) inspectCommand() *cobra.Command {
	var (
		o               inspect.Options
		asJSON, tensors bool
	)
	cmd := &cobra.Command{
		Use:   "inspect DIR|PACKAGE|BUNDLE",
		Short: "Say what a checkpoint, package or bundle holds",
		Long: `Describes a Hugging Face directory (configuration in normal form, tensors and
what a conversion makes of them), an .mlpackage (functions, inputs, outputs,
states, operations) or a bundle (contract, chunks, sizes).

A checkpoint that cannot be converted is described as far as possible; the
reason follows as an error.`,
		Example: s.examples(
			"inspect ./gemma-3-270m",
			"inspect ./gemma-3-270m --tensors",
			"inspect gemma.bundle",
			"inspect gemma.bundle/chunk_01.mlpackage --json"),
		Args: takes(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := inspect.Path(args[0], o)
			if err != nil {
				return err
			}
			if asJSON {
				err = s.printJSON(r)
			} else {
				s.printInspection(r, tensors)
			}
			if p := problem(r); err == nil && p != "" {
				return errors.New(p)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&tensors, "tensors", false, "list every tensor of a checkpoint")
	f.StringSliceVar(&o.IgnoreKeys, "ignore-config-key", nil, "accept this unknown `KEY` of config.json unread (repeatable)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	completeDirs(cmd)
	return cmd
}

// problem is why the thing described is of no use as it is.
func problem(r *inspect.Report) string {
	switch r.Kind {
	case inspect.KindCheckpoint:
		return r.Checkpoint.Problem
	case inspect.KindPackage:
		return r.Package.Problem
	}
	return r.Bundle.Problem()
}

func (s *session) printInspection(r *inspect.Report, tensors bool) {
	switch r.Kind {
	case inspect.KindCheckpoint:
		s.printCheckpoint(r.Path, r.Checkpoint, tensors)
	case inspect.KindPackage:
		fmt.Fprintf(s.stdout, "%s: package\n", r.Path)
		s.printPackage(r.Package, "")
	case inspect.KindBundle:
		s.printBundle(r.Path, r.Bundle)
	}
}

func (s *session) printCheckpoint(path string, c *inspect.Checkpoint, tensors bool) {
	fmt.Fprintf(s.stdout, "%s: checkpoint\n", path)
	t := newTable(nil)
	if c.Config != nil {
		configRows(t, c.Config)
	}
	var dtypes []string
	for _, d := range c.DTypes {
		dtypes = append(dtypes, fmt.Sprintf("%d %s (%s)", d.Tensors, d.DType, megabytes(d.Bytes)))
	}
	t.AppendRow(table.Row{"tensors", fmt.Sprintf("%d: %s", len(c.Tensors), strings.Join(dtypes, ", "))})
	t.AppendRow(table.Row{"parameters", commas(c.Parameters)})
	t.AppendRow(table.Row{"waived", fmt.Sprintf("%s (%s)", plural(c.Waived, "tensor"), megabytes(c.WaivedBytes))})
	for _, f := range c.Files {
		t.AppendRow(table.Row{"file", fmt.Sprintf("%s (%s)", f.Name, megabytes(f.Bytes))})
	}
	t.AppendRow(table.Row{"tokenizer", tokenizerText(c.Tokenizer)})
	s.printTable(t)
	if !tensors {
		return
	}
	fmt.Fprintln(s.stdout)
	list := newTable(table.Row{"tensor", "dtype", "shape", "bytes", "use"}, 4)
	for _, x := range c.Tensors {
		use := string(x.Use)
		if x.Reason != "" {
			use += ": " + x.Reason
		}
		list.AppendRow(table.Row{x.Name, x.DType, fmt.Sprint(x.Shape), commas(x.Bytes), use})
	}
	s.printTable(list)
}

func configRows(t table.Writer, c *models.Config) {
	row := func(name, format string, args ...any) { t.AppendRow(table.Row{name, fmt.Sprintf(format, args...)}) }
	row("architecture", "%s (%s)", c.Architecture, c.ModelType)
	row("layers", "%d: %s", c.Layers, layerKinds(c))
	row("width", "hidden %d, intermediate %d, %s", c.Hidden, c.Intermediate, c.Activation)
	row("attention", "%d heads, %d KV heads, head_dim %d, scale %.6g%s", c.Heads, c.KVHeads, c.HeadDim, c.AttnScale, attentionTraits(c))
	for _, k := range c.AllKinds() {
		r := c.Rope[k]
		text := fmt.Sprintf("%s, theta %g", r.Type, r.Theta)
		if r.Type != "default" {
			text += fmt.Sprintf(", factor %g", r.Factor)
		}
		row("rope "+string(k), "%s", text)
	}
	head := "own head"
	if c.Tied {
		head = "tied head"
	}
	if c.FinalSoftcap != 0 {
		head += fmt.Sprintf(", softcap %g", c.FinalSoftcap)
	}
	row("vocabulary", "%d, %s, bos %d, eos %v", c.Vocab, head, c.BOS, c.EOS)
	row("positions", "%d", c.MaxPositions)
	if len(c.Defaulted) > 0 {
		row("defaults", "taken for %s", strings.Join(c.Defaulted, ", "))
	}
}

// layerKinds prints "2 full, 6 sliding of window 24".
func layerKinds(c *models.Config) string {
	var kinds []string
	for _, k := range c.AllKinds() {
		text := fmt.Sprintf("%d %s", c.CountKind(k, 0, c.Layers), k)
		if k == models.Sliding {
			text += fmt.Sprintf(" of window %d", c.Window)
		}
		kinds = append(kinds, text)
	}
	return strings.Join(kinds, ", ")
}

func attentionTraits(c *models.Config) string {
	var b strings.Builder
	for _, t := range []struct {
		on   bool
		text string
	}{{c.QKNorm, "q/k norm"}, {c.QKVBias, "qkv bias"}, {c.OBias, "o bias"}, {c.AttnSoftcap != 0, fmt.Sprintf("softcap %g", c.AttnSoftcap)}} {
		if t.on {
			b.WriteString(", " + t.text)
		}
	}
	return b.String()
}

func tokenizerText(t *inspect.Tokenizer) string {
	switch {
	case t == nil:
		return "none"
	case t.Problem != "":
		return "unusable: " + t.Problem
	}
	return fmt.Sprintf("%d entries", t.VocabSize)
}

func (s *session) printPackage(p *inspect.Package, indent string) {
	fmt.Fprintf(s.stdout, "%sspecification %d, model %s, weights %s in %s\n", indent, p.Spec, megabytes(p.Model), megabytes(p.Weights), plural(p.Blobs, "blob"))
	if p.Description != "" {
		fmt.Fprintf(s.stdout, "%s%s\n", indent, p.Description)
	}
	for _, f := range p.Functions {
		fmt.Fprintf(s.stdout, "\n%sfunction %s (%s): %s, %s, %s\n", indent, f.Name, f.Opset,
			plural(f.Total, "op"), plural(sum(f.Constexprs), "constexpr"), plural(f.Constants, "constant"))
		t := newTable(nil)
		for _, g := range []struct {
			role   string
			values []inspect.Value
		}{{"input", f.Inputs}, {"state", f.States}, {"output", f.Outputs}} {
			for _, v := range g.values {
				t.AppendRow(table.Row{indent + "  " + g.role, v.Name, v.Type})
			}
		}
		s.printTable(t)
		fmt.Fprintf(s.stdout, "%s  ops     %s\n", indent, histogram(f.Ops))
		if len(f.Constexprs) > 0 {
			fmt.Fprintf(s.stdout, "%s  constexpr %s\n", indent, histogram(f.Constexprs))
		}
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(s.stdout, "%swarning: %s\n", indent, w)
	}
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// histogram prints counts, the largest first.
func histogram(m map[string]int) string {
	keys := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(keys, func(a, b string) int { return m[b] - m[a] })
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%s %d", k, m[k])
	}
	return strings.Join(keys, ", ")
}

func (s *session) printBundle(path string, b *inspect.Bundle) {
	fmt.Fprintf(s.stdout, "%s: bundle\n", path)
	t := newTable(nil)
	row := func(name, format string, args ...any) { t.AppendRow(table.Row{name, fmt.Sprintf(format, args...)}) }
	m := b.Model
	row("model", "%s, %d layers, hidden %d, %d heads, %d KV heads, head_dim %d, vocabulary %d", m.Architecture, m.Layers, m.Hidden, m.Heads, m.KVHeads, m.HeadDim, m.Vocab)
	row("compute", "%s, residual scale %s", b.Compute, fraction(b.ResidualScale))
	row("context", "%d positions, %s cache", b.Context, b.KV)
	for _, k := range slices.Sorted(maps.Keys(b.Attention)) {
		a := b.Attention[k]
		text := fmt.Sprintf("%d layers, %s cache of %d slots", a.Layers, a.Layout, a.Slots)
		if a.Window > 0 {
			text += fmt.Sprintf(", window %d", a.Window)
		}
		row(string(k), "%s", text)
	}
	row("functions", "%s", strings.Join(b.Functions, ", "))
	var head []string
	for _, r := range b.Head {
		head = append(head, string(r))
	}
	row("head", "%s", strings.Join(head, ", "))
	row("embedding", "%s", b.Embedding)
	row("tokenizer", "%s", tokenizerText(b.Tokenizer))
	row("size", "%s in %s", megabytes(b.Bytes), plural(len(b.Files), "file"))
	s.printTable(t)
	fmt.Fprintln(s.stdout)
	list := newTable(table.Row{"chunk", "layers", "ops", "constexprs", "weights", "blobs", "model"}, 3, 4, 5, 6, 7)
	for _, c := range b.Chunks {
		ops, constexprs := 0, 0
		for _, f := range c.Functions {
			ops += f.Total
			constexprs += sum(f.Constexprs)
		}
		list.AppendRow(table.Row{c.File, fmt.Sprintf("%d-%d", c.First, c.Last), ops, constexprs, megabytes(c.Weights), c.Blobs, megabytes(c.Model)})
	}
	s.printTable(list)
	fmt.Fprintf(s.stdout, "\n%s inspect %s shows a chunk's functions\n", s.name, quote(strings.TrimRight(path, "/")+"/"+b.Chunks[0].File))
}
