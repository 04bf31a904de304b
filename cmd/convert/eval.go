package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
		text, ref string
		asJSON    bool
		o         fidelity.Options
	)
	cmd := &cobra.Command{
		Use:   "eval DIR|BUNDLE --text FILE",
		Short: "Measure perplexity, and what a quantized model has kept",
		Long: `Feeds a text to a model in windows and prints its perplexity. DIR is a Hugging
Face directory or an MLX one, quantized or not; a BUNDLE runs as it is.

With --reference, usually the directory that DIR was made from, it prints how far
the predicted distributions are from the reference's (KL, in nats), how often both
put the same token first, and the paired difference of ln perplexity with its
standard error.`,
		Example: s.examples(
			"eval ./gemma-3-270m --text eval.txt",
			"eval ./gemma-4bit --text eval.txt --reference ./gemma-3-270m --windows 4",
			"eval gemma.bundle --text eval.txt --reference ./gemma-3-270m --json"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if text == "" {
				return usagef("eval: give a text: --text FILE")
			}
			if o.Window < 2 || o.Limit < 0 {
				return usagef("--window %d --windows %d: want at least 2 tokens, and 0 or more windows", o.Window, o.Limit)
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
			data, err := os.ReadFile(text)
			if err != nil {
				return err
			}
			ids, err := tok.Encode(string(data), tokenizer.EncodeOptions{})
			if err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
			if o.Prefix, err = tok.Encode("", tokenizer.EncodeOptions{AddSpecial: true}); err != nil {
				return err
			}
			bars := s.newBars(cmd.Context())
			o.Progress = bars.update
			rep, err := fidelity.Evaluate(cmd.Context(), m, against, ids, o)
			bars.close()
			if err != nil {
				return err
			}
			if asJSON {
				return s.printJSON(rep)
			}
			s.printFidelity(rep)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&text, "text", "", "text `FILE`, UTF-8")
	f.StringVar(&ref, "reference", "", "`MODEL` to compare with: a directory or a bundle")
	f.IntVar(&o.Window, "window", fidelity.DefaultWindow, "tokens of a window")
	f.IntVar(&o.Limit, "windows", 0, "evaluate only the first `N` windows (default: all)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	completeDirs(cmd)
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

// printFidelity prints what was measured.
func (s *session) printFidelity(r *fidelity.Report) {
	t := newTable(nil)
	row := func(name, format string, args ...any) { t.AppendRow(table.Row{name, fmt.Sprintf(format, args...)}) }
	row("text", "%s of %d tokens, %s", plural(r.Windows, "window"), r.Window, plural(r.Positions, "position"))
	row("perplexity", "%.4f", r.Perplexity)
	if a := r.Against; a != nil {
		row("reference", "%.4f", a.Perplexity)
		row("Δ ln perplexity", "%+.5f ± %.5f", a.Delta, a.DeltaError)
		row("mean KL", "%.5f ± %.5f", a.KL, a.KLError)
		row("99 % KL", "%.4f", a.KL99)
		row("99.9 % KL", "%.4f (largest %.4f)", a.KL999, a.KLMax)
		row("same first token", "%.1f %%", 100*a.Top1)
	}
	s.printTable(t)
}
