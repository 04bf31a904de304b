package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/inspect"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/tokenizer"
)

// What the demo runs.
const (
	demoPrompt = "If the application"
	demoTokens = 40
	// The fault: a rope_theta of full attention layers misread by a factor of
	// two, as happens when a config.json with two of them is read as if it had
	// one.
	demoTheta, demoWrongTheta = `"rope_theta": 100000.0`, `"rope_theta": 200000.0`
)

func (s *session) demoCommand() *cobra.Command {
	var keep string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole pipeline on a built-in model, in a minute",
		Long: `Takes a tiny Gemma 3 that was trained on the documentation of SQLite and is
built into this binary: looks at it, converts it into two chunks with three
functions, runs them, compares them with PyTorch, and then breaks the
conversion on purpose to see the comparison find the culprit.

Every number is computed while you watch. Nothing is downloaded.`,
		Example: s.examples("demo", "demo --keep ./demo"),
		Args:    takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := demoDir(keep)
			if err != nil {
				return err
			}
			if keep == "" {
				defer os.RemoveAll(dir)
			}
			d := &demo{session: s, ctx: cmd.Context(), dir: dir, kept: keep != "", start: time.Now()}
			return d.play()
		},
	}
	cmd.Flags().StringVar(&keep, "keep", "", "keep model and bundles in the new directory `DIR`")
	return cmd
}

func demoDir(keep string) (string, error) {
	if keep == "" {
		return os.MkdirTemp("", "smelt-demo-")
	}
	if _, err := os.Stat(keep); err == nil {
		return "", fmt.Errorf("%s exists already (give --keep the name of a new directory)", keep)
	}
	return keep, os.MkdirAll(keep, 0o755)
}

// demo plays the pipeline in a directory of its own.
type demo struct {
	*session
	ctx   context.Context
	dir   string
	kept  bool
	start time.Time
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, name) }

func (d *demo) play() error {
	model, bundle, broken := d.path("model"), d.path("demo.bundle"), d.path("broken.bundle")
	if err := os.CopyFS(model, fixtures.Demo()); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.title("1. A checkpoint", "a Gemma 3 trained on the documentation of SQLite, as Hugging Face stores it")
	if err := d.look(model); err != nil {
		return err
	}
	d.title("2. Convert", "into two Core ML packages, each with three functions that share its weights")
	if err := d.convert(model, bundle); err != nil {
		return err
	}
	d.title("3. Run", "the packages, read back from disk")
	text, err := d.generate(bundle)
	if err != nil {
		return err
	}
	d.say("  %s%s", d.bold(demoPrompt), indent(text.Text))
	d.say("  %d tokens, first after %.0f ms, then %.0f tokens/s", len(text.IDs), 1e3*text.FirstSeconds, text.Rate)
	d.title("4. Compare", "with what PyTorch computed from the same checkpoint, token by token")
	rep, err := parity.Verify(d.ctx, bundle, parity.Options{Golden: d.path("model/golden.safetensors"), Checkpoint: model})
	if err != nil {
		return err
	}
	d.verdict(rep)
	if !rep.Pass {
		_ = rep.WriteText(d.stdout)
		return errGate
	}
	d.title("5. Break it", "on purpose: one number of config.json misread, rope_theta of two layers doubled")
	if err := d.sabotage(model, broken, text); err != nil {
		return err
	}
	d.next(bundle, model)
	return nil
}

func (d *demo) look(model string) error {
	r, err := inspect.Path(model, inspect.Options{})
	if err != nil {
		return err
	}
	c := r.Checkpoint
	d.say("  %s, %d layers (%s), hidden %d, %s parameters in %d tensors, %s", c.Config.Architecture, c.Config.Layers,
		layerKinds(c.Config), c.Config.Hidden, commas(c.Parameters), len(c.Tensors), megabytes(c.Bytes))
	return nil
}

func (d *demo) convert(model, bundle string) error {
	start := time.Now()
	rep, err := conversion.Convert(d.ctx, model, bundle, conversion.Options{Chunks: 2})
	if err != nil {
		return err
	}
	t := newTable(table.Row{"  chunk", "layers", "functions", "ops", "weights"}, 4, 5)
	for _, c := range rep.Chunks {
		t.AppendRow(table.Row{"  " + c.Name + ".mlpackage", fmt.Sprintf("%d-%d", c.Layers[0], c.Layers[1]),
			strings.Join(c.Functions, ", "), c.Ops, megabytes(c.Weights)})
	}
	d.printTable(t)
	d.say("  %d tensors used, %d waived, %.2f s", rep.Used, len(rep.Waived), time.Since(start).Seconds())
	return nil
}

// generate continues the demo's prompt.
func (d *demo) generate(bundle string) (*generation, error) {
	e, err := engine.Open(bundle, engine.Options{})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	tok, err := bundleTokenizer(bundle)
	if err != nil {
		return nil, err
	}
	g := &generation{}
	if g.PromptIDs, err = tok.Encode(demoPrompt, tokenizer.EncodeOptions{AddSpecial: true}); err != nil {
		return nil, err
	}
	return g, d.session.generate(d.ctx, e, tok, g, engine.GenerateOptions{MaxTokens: demoTokens}, false, nil)
}

// verdict prints a line for each gate.
func (d *demo) verdict(rep *parity.Report) {
	t := newTable(nil)
	for _, g := range rep.Gates {
		word := d.good("pass")
		if g.Status == parity.Fail {
			word = d.bad("FAIL")
		}
		t.AppendRow(table.Row{"  " + word, g.ID, headline(g)})
	}
	d.printTable(t)
}

// headline is the most telling number of a gate that is held against a limit;
// of others, what they prove.
func headline(g *parity.Result) string {
	best := clip(g.Proves, 72)
	for _, n := range g.Numbers {
		if n.Limit != nil && (strings.HasSuffix(n.Name, "max_abs_dlogit") || strings.HasSuffix(n.Name, "relative_l2")) {
			best = fmt.Sprintf("%s %.2g (at most %.2g)", n.Name, float64(n.Value), float64(*n.Limit))
		}
	}
	if g.Status == parity.Skip {
		return g.Reason
	}
	return best
}

// sabotage converts with a wrong number and lets the gate find it.
func (d *demo) sabotage(model, broken string, right *generation) error {
	wrong := d.path("broken-model")
	if err := os.CopyFS(wrong, fixtures.Demo()); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	config := filepath.Join(wrong, "config.json")
	data, err := os.ReadFile(config)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	changed := bytes.Replace(data, []byte(demoTheta), []byte(demoWrongTheta), 1)
	if bytes.Equal(changed, data) {
		return fmt.Errorf("demo: %s has no %s to break", config, demoTheta)
	}
	if err := os.WriteFile(config, changed, 0o644); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if _, err := conversion.Convert(d.ctx, wrong, broken, conversion.Options{Chunks: 2}); err != nil {
		return err
	}
	g, err := d.generate(broken)
	if err != nil {
		return err
	}
	same := "word for word the same text"
	if g.Text != right.Text {
		same = "other words, no less plausible:" + indent(g.Text)
	}
	d.say("  The broken bundle writes %s. Reading it tells nothing; the gate does:", same)
	rep, err := parity.Verify(d.ctx, broken, parity.Options{Golden: d.path("model/golden.safetensors"), Checkpoint: model,
		Gates: []string{"logits.fp32.decode"}})
	if err != nil {
		return err
	}
	d.verdict(rep)
	tok, err := bundleTokenizer(broken)
	if err != nil {
		return err
	}
	for _, res := range rep.Gates {
		if res.Status == parity.Fail {
			d.say("  %s", d.flip(tok, res))
			if res.Finding != nil {
				d.say("  %s", d.bold(wrap("Culprit: "+res.Finding.String(), 88, "  ")))
			}
		}
	}
	if rep.Pass {
		fmt.Fprintf(d.stdout, "  %s\n", d.bad("the fault went unnoticed"))
		return errGate
	}
	return nil
}

// flip shows the first token that the broken bundle gets wrong.
func (d *demo) flip(tok *tokenizer.Tokenizer, res *parity.Result) string {
	text := func(id int32) string { return tok.Decode([]int32{id}, tokenizer.DecodeOptions{}) }
	for _, f := range res.Flips {
		if f.Counts {
			return fmt.Sprintf("After token %d it says %q where PyTorch says %q.", f.Position, text(f.Got), text(f.Want))
		}
	}
	return res.Reason
}

func (d *demo) next(bundle, model string) {
	fmt.Fprintf(d.stdout, "\nAll of it computed here, in %.1f s. With files of your own:\n", time.Since(d.start).Seconds())
	fmt.Fprintf(d.stdout, "  %[1]s inspect DIR                          a Hugging Face directory\n"+
		"  %[1]s convert DIR -o my.bundle             Llama 3, SmolLM2, Qwen 2, Qwen 3, Gemma 3 and 4\n"+
		"  %[1]s run my.bundle --prompt \"...\"\n"+
		"  %[1]s parity my.bundle --checkpoint DIR\n", d.name)
	if d.goRun {
		fmt.Fprintf(d.stdout, "(go build -o smelt ./cmd/convert makes the command)\n")
	}
	if d.kept {
		fmt.Fprintf(d.stdout, "kept in %s: %s, %s, %s\n", d.dir, filepath.Base(model), filepath.Base(bundle), "broken.bundle")
	} else {
		fmt.Fprintf(d.stdout, "%s demo --keep DIR leaves the files for you to look at.\n", d.name)
	}
}
