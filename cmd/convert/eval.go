package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fidelity"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/tokenizer"
)

func (s *session) evalCommand() *cobra.Command {
	var (
		texts  []string
		ref    string
		save   string
		force  bool
		asJSON bool
		o      fidelity.Options
	)
	cmd := &cobra.Command{
		Use:   "eval DIR|BUNDLE --text FILE",
		Short: "Measure perplexity, and what a quantized model has kept",
		Long: `Feeds a text to a model in windows and prints its perplexity. DIR is a Hugging
Face directory or an MLX one, quantized or not; a BUNDLE runs as it is.

With --reference, usually the directory that DIR was made from, it prints how far
the predicted distributions are from the reference's (KL, in nats), how often both
put the same token first, and the paired difference of ln perplexity with its
standard error.

Several texts are measured side by side: what a calibration has gained on texts of
its own kind says little about others.

--save writes the divergence at every position, which eval compare pairs with that
of another model.`,
		Example: s.examples(
			"eval ./gemma-3-270m --text eval.txt",
			"eval ./gemma-4bit --text eval.txt --reference ./gemma-3-270m --windows 4",
			"eval ./gemma-4bit --text docs.txt --text code.txt --reference ./gemma-3-270m",
			"eval gemma.bundle --text eval.txt --reference ./gemma-3-270m --json"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(texts) == 0 {
				return usagef("eval: give a text: --text FILE")
			}
			if o.Window < 2 || o.Limit < 0 {
				return usagef("--window %d --windows %d: want at least 2 tokens, and 0 or more windows", o.Window, o.Limit)
			}
			if save != "" {
				if ref == "" {
					return usagef("eval: --save writes divergences: give a --reference")
				}
				if err := fresh(save, force); err != nil {
					return err
				}
			}
			m, tok, done, err := openModel(args[0])
			if err != nil {
				return err
			}
			defer done()
			var against fidelity.Model
			if ref != "" {
				r, _, refDone, err := openModel(ref)
				if err != nil {
					return err
				}
				defer refDone()
				against = r
			}
			if o.Prefix, err = tok.Encode("", tokenizer.EncodeOptions{AddSpecial: true}); err != nil {
				return err
			}
			var reps []evaluated
			for _, text := range texts {
				data, err := os.ReadFile(text)
				if err != nil {
					return err
				}
				if !utf8.Valid(data) {
					return fmt.Errorf("%s: is not UTF-8 (a binary file?)", text)
				}
				ids, err := tok.Encode(string(data), tokenizer.EncodeOptions{})
				if err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
				bars := s.newBars(cmd.Context())
				o.Progress = bars.update
				rep, err := fidelity.Evaluate(cmd.Context(), m, against, ids, o)
				bars.close()
				if err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
				reps = append(reps, evaluated{text, rep, fmt.Sprintf("%x", sha256.Sum256(data))})
			}
			if save != "" {
				if err := writeWhole(save, savedDivergences(args[0], reps)); err != nil {
					return err
				}
			}
			switch {
			case asJSON && len(reps) == 1:
				return s.printJSON(reps[0].Report)
			case asJSON:
				return s.printJSON(reps)
			}
			s.printFidelity(reps)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&texts, "text", nil, "text `FILE`, UTF-8; may be given several times")
	f.StringVar(&ref, "reference", "", "`MODEL` to compare with: a directory or a bundle")
	f.IntVar(&o.Window, "window", fidelity.DefaultWindow, "tokens of a window")
	f.IntVar(&o.Limit, "windows", 0, "evaluate only the first `N` windows (default: all)")
	f.StringVar(&save, "save", "", "write the divergence at every position to this `FILE`")
	f.BoolVar(&force, "force", false, "replace an existing file")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	completeDirs(cmd)
	cmd.AddCommand(s.evalCompareCommand())
	return cmd
}

// openModel opens a bundle, an MLX directory or a Hugging Face directory with
// its tokenizer.
func openModel(dir string) (fidelity.Model, *tokenizer.Tokenizer, func() error, error) {
	hf := dir
	if _, err := os.Stat(filepath.Join(dir, chunking.ContractFile)); err == nil {
		hf = filepath.Join(dir, chunking.HFDir)
	}
	tok, err := tokenizer.Load(hf)
	if err != nil {
		return nil, nil, nil, err
	}
	if hf != dir {
		e, err := engine.Open(dir, engine.Options{})
		if err != nil {
			return nil, nil, nil, err
		}
		return fidelity.Bundle(e), tok, e.Close, nil
	}
	d, err := mlx.Open(dir)
	switch {
	case err == nil:
		m, err := decoder.New(d.Float32(), d.Config())
		if err != nil {
			return nil, nil, nil, errors.Join(fmt.Errorf("%s: %w", dir, err), d.Close())
		}
		return fidelity.Decoder(m), tok, d.Close, nil
	case !errors.Is(err, mlx.ErrNotQuantized):
		return nil, nil, nil, err
	}
	m, err := decoder.Open(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	return fidelity.Decoder(m), tok, m.Close, nil
}

// evaluated is what was measured on one text.
type evaluated struct {
	Text string `json:"text"`
	*fidelity.Report
	hash string // of the text
}

// printFidelity prints what was measured, texts side by side.
func (s *session) printFidelity(reps []evaluated) {
	t := newTable(nil)
	row := func(name string, value func(r *fidelity.Report) string) {
		cells := table.Row{name}
		for _, r := range reps {
			cells = append(cells, value(r.Report))
		}
		t.AppendRow(cells)
	}
	against := func(name, format string, args func(a *fidelity.Against) []any) {
		row(name, func(r *fidelity.Report) string { return fmt.Sprintf(format, args(r.Against)...) })
	}
	if len(reps) > 1 {
		cells := table.Row{""}
		for _, r := range reps {
			cells = append(cells, filepath.Base(r.Text))
		}
		t.AppendRow(cells)
	}
	row("text", func(r *fidelity.Report) string {
		return fmt.Sprintf("%s of %d tokens, %s", plural(r.Windows, "window"), r.Window, plural(r.Positions, "position"))
	})
	row("perplexity", func(r *fidelity.Report) string { return fmt.Sprintf("%.4f", r.Perplexity) })
	if reps[0].Against != nil {
		against("reference", "%.4f", func(a *fidelity.Against) []any { return []any{a.Perplexity} })
		against("Δ ln perplexity", "%+.5f ± %.5f", func(a *fidelity.Against) []any { return []any{a.Delta, a.DeltaError} })
		against("mean KL", "%.5f ± %.5f", func(a *fidelity.Against) []any { return []any{a.KL, a.KLError} })
		against("99 % KL", "%.4f", func(a *fidelity.Against) []any { return []any{a.KL99} })
		against("99.9 % KL", "%.4f (largest %.4f)", func(a *fidelity.Against) []any { return []any{a.KL999, a.KLMax} })
		against("same first token", "%.1f %%", func(a *fidelity.Against) []any { return []any{100 * a.Top1} })
	}
	s.printTable(t)
}
