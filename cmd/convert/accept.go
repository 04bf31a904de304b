package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/internal/atomicdir"
	"github.com/smelt-go/smelt/runtime"
	"github.com/smelt-go/smelt/speculate"
)

// acceptFlags are what the command line of accept says.
type acceptFlags struct {
	a             string
	b             []string
	target        string
	prompts       string
	imported      string
	out           string
	arithmetic    string
	mode, speed   string
	cut, limit    int
	context       int
	cross         bool
	reading       string
	asJSON, force bool
	gate          speculate.Gate
	compare       speculate.CompareOptions
	seed          uint64
}

func (s *session) acceptCommand() *cobra.Command {
	f := acceptFlags{gate: speculate.Gate{MaxDrop: speculate.DefaultMaxDrop}}
	cmd := &cobra.Command{
		Use:   "accept --a DRAFTER_A [--b DRAFTER_B] --target T --prompts FILE",
		Short: "Say whether a drafter still predicts what another one does",
		Long: `Lets two drafters, usually an original and a quantized copy, draft for one target
over the same prompts, and judges B: it passes only if its acceptance is at most
--max-drop-pts points below A's and its round is faster, both with 95 % confidence.
Prompts are what is resampled: a few dozen at least are needed.

A drafter is a bundle or checkpoint of a model with the target's vocabulary (with
--cross of any), a drafter (Gemma 4 assistant, EAGLE-3, MTP modules, DSpark),
lookup (what followed the last tokens before), suffix (the same, by a suffix
automaton), or several of these joined by +. --b may be given several times;
without it A is measured alone, and nothing is judged.
Checkpoints are converted on the way; their speed is then that of the bytes that
a round reads, as it is with --speed bytes.

The output is compared with serial decoding's token by token: a difference is an
error. Ties that the order of sums can turn round (with --arithmetic typed, near
ties that rounding can) are reported instead. --margin accepts what the target
likes nearly as well, which is lossy and says so.

--import judges an A/B that another runtime recorded, by the same rules.

Exit code 0: every B passed, or there was none; 1: one did not; 2: no verdict.`,
		Example: s.examples(
			"accept --a draft.bundle --b draft-4bit.bundle --target gemma.bundle --prompts prompts.txt",
			"accept --a lookup --b suffix --b suffix+draft.bundle --target gemma.bundle --prompts prompts.txt --gamma 5",
			"accept --a draft.bundle --target gemma.bundle --prompts prompts.txt",
			"accept --a draft.bundle --b draft-w8.bundle --b draft-w4.bundle --target gemma.bundle --prompts text.txt --cut 48 -o ab",
			"accept --import ab-results.json --max-drop-pts 2"),
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := s.accept(cmd, &f)
			if err != nil {
				return err
			}
			if f.out != "" {
				if err := writeResult(f.out, r, f.force); err != nil {
					return err
				}
			}
			if f.asJSON {
				if err := s.printJSON(r); err != nil {
					return err
				}
			} else {
				s.printAcceptance(r)
			}
			if !r.Pass {
				return errGate
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.a, "a", "", "`DRAFTER` to compare with")
	fs.StringArrayVar(&f.b, "b", nil, "`DRAFTER` to judge (repeatable)")
	fs.StringVar(&f.target, "target", "", "bundle or checkpoint that verifies")
	fs.StringVar(&f.prompts, "prompts", "", "`FILE` with a prompt a line, or a JSON list of texts or of lists of token ids")
	fs.IntVar(&f.cut, "cut", 0, "the file is one text: cut it into prompts of `N` tokens")
	fs.IntVar(&f.limit, "limit", 0, "use only the first `N` prompts (default: all)")
	fs.StringVar(&f.imported, "import", "", "judge the records in `FILE` instead")
	fs.IntVar(&f.compare.Gamma, "gamma", 3, "drafts a round")
	fs.IntVarP(&f.compare.MaxTokens, "tokens", "n", 64, "tokens to generate after each prompt")
	fs.BoolVar(&f.compare.IgnoreEOS, "ignore-eos", false, "go on after an end-of-text token")
	fs.Float64Var(&f.compare.Margin, "margin", 0, "LOSSY: accept drafts whose logit is at most this far below the best")
	fs.Float64Var(&f.compare.MinConfidence, "min-confidence", 0, "cut a round before the first draft of less confidence")
	fs.BoolVar(&f.compare.WriteThrough, "write-through", false, "also measure how far a host drifts that writes drafts into the cache before they are accepted")
	fs.Float64Var(&f.gate.MaxDrop, "max-drop-pts", speculate.DefaultMaxDrop, "drop of acceptance that is tolerated, in points")
	fs.StringVar(&f.mode, "mode", speculate.Chain, "acceptance that is judged: chain (live), argmax or oracle (which claim too much)")
	fs.StringVar(&f.speed, "speed", "", "speed of a round: wall or bytes (default: wall if all are bundles, else bytes)")
	fs.StringVar(&f.arithmetic, "arithmetic", "fp32", "arithmetic of bundles: fp32, or typed, which rounds and so may break ties otherwise")
	fs.IntVar(&f.context, "context", 0, fmt.Sprintf("positions of conversions (default: the model's, at most %d)", speculate.DefaultContext))
	fs.BoolVar(&f.cross, "cross", false, "models may have another vocabulary: draft by way of text")
	fs.StringVar(&f.reading, "reading", "", "what slots of a block drafter guess, if its files do not tell: anchor or masks")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of the resampling")
	fs.StringVarP(&f.out, "output", "o", "", "directory to write result.json, acceptance.svg and, for several sizes, sizes.svg to")
	fs.BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	fs.BoolVar(&f.force, "force", false, "replace an existing directory")
	completeValues(cmd, map[string][]string{"mode": {speculate.Chain, speculate.Argmax, speculate.Oracle}, "speed": {"wall", "bytes"}, "arithmetic": {"typed", "fp32"}, "reading": {"anchor", "masks"}})
	return cmd
}

// accept runs or imports an A/B and judges it.
func (s *session) accept(cmd *cobra.Command, f *acceptFlags) (*speculate.Result, error) {
	f.gate.Bootstrap.Seed = f.seed
	if !(f.gate.MaxDrop >= 0) {
		return nil, usagef("--max-drop-pts %g: want 0 or more", f.gate.MaxDrop)
	}
	if f.imported != "" {
		for _, flag := range []string{"a", "b", "target", "prompts"} {
			if cmd.Flags().Changed(flag) {
				return nil, usagef("--import and --%s exclude each other", flag)
			}
		}
		rec, err := speculate.Import(f.imported)
		if err != nil {
			return nil, err
		}
		speed := f.speed
		if speed == "" {
			speed = "wall"
		}
		return speculate.JudgeRecorded(rec, speed, f.gate)
	}
	switch {
	case f.a == "" || f.target == "" || f.prompts == "":
		return nil, usagef("accept needs --a, --target and --prompts, and --b to judge, or --import")
	case f.compare.Gamma < 1:
		return nil, usagef("--gamma %d: want at least 1", f.compare.Gamma)
	case f.compare.MaxTokens < 1:
		return nil, usagef("-n %d: want at least 1", f.compare.MaxTokens)
	case !(f.compare.Margin >= 0):
		return nil, usagef("--margin %g: want 0 or more", f.compare.Margin)
	case f.speed != "" && f.speed != "wall" && f.speed != "bytes":
		return nil, usagef("--speed %s: want wall or bytes", f.speed)
	case f.mode != speculate.Chain && f.mode != speculate.Oracle && f.mode != speculate.Argmax:
		return nil, usagef("--mode %s: want chain, argmax or oracle", f.mode)
	}
	arithmetic, err := parseMode(f.arithmetic)
	if err != nil {
		return nil, err
	}
	w := &speculate.Workshop{Gamma: f.compare.Gamma, Context: f.context, Mode: arithmetic, Cross: f.cross, Reading: f.reading}
	defer w.Close()
	f.compare.Ties = speculate.FP32Ties
	if arithmetic == runtime.Typed {
		f.compare.Ties = speculate.FP16Ties
	}
	bars := s.newBars(cmd.Context())
	defer bars.close()
	f.compare.Progress = bars.update
	if err := w.Target(f.target); err != nil {
		return nil, err
	}
	prompts, err := speculate.ReadPrompts(f.prompts, w.Tokenizer(), f.cut)
	if err != nil {
		return nil, err
	}
	if f.limit > 0 && f.limit < len(prompts) {
		prompts = prompts[:f.limit]
	}
	if len(prompts) < speculate.MinPrompts {
		return nil, fmt.Errorf("%s has %s, too few for a verdict (give at least %d, better 100)", f.prompts, plural(len(prompts), "prompt"), speculate.MinPrompts)
	}
	w.Sample = prompts[:speculate.MinPrompts]
	trials, converted, err := s.trials(cmd.Context(), w, f, prompts)
	if err != nil {
		return nil, err
	}
	speed := f.speed
	if speed == "" {
		speed = "wall"
		if converted {
			speed = "bytes"
		}
	}
	r, err := speculate.Judge(trials, f.mode, speed, f.gate, f.compare)
	if err != nil {
		return nil, err
	}
	r.Target = f.target
	return r, nil
}

// trials opens the drafters and runs them. converted tells that one of them is
// no bundle, so that its time says nothing.
func (s *session) trials(ctx context.Context, w *speculate.Workshop, f *acceptFlags, prompts []speculate.Prompt) (trials []*speculate.Trial, converted bool, err error) {
	var arms []*speculate.Arm
	for _, spec := range append([]string{f.a}, f.b...) {
		arm, err := w.Arm(ctx, spec)
		if err != nil {
			return nil, false, err
		}
		arms = append(arms, arm)
	}
	seen := map[string]int{}
	for _, a := range arms {
		seen[a.Name]++
	}
	for i, spec := range append([]string{f.a}, f.b...) {
		if seen[arms[i].Name] > 1 {
			arms[i].Name = spec // two directories of one name
		}
	}
	trials, err = speculate.Compare(ctx, arms, prompts, f.compare)
	return trials, w.Converted(), err
}

// writeResult writes the directory of a result.
func writeResult(out string, r *speculate.Result, force bool) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	svg, err := r.Plot()
	if err != nil {
		return err
	}
	if entries, err := os.ReadDir(out); err == nil && force && len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(out, "result.json")); err != nil {
			return fmt.Errorf("%s exists and holds no result (remove it yourself, or choose another name)", out)
		}
	}
	files := map[string][]byte{"result.json": append(data, '\n'), "acceptance.svg": svg}
	if curves, level := r.Sizes(); curves != nil {
		if files["sizes.svg"], err = speculate.PlotCurves("acceptance by size of the drafter", "kB read by a draft", "accepted", curves, level); err != nil {
			return err
		}
	}
	return atomicdir.Write(out, atomicdir.Options{Force: force}, func(dir string) error {
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

// printAcceptance prints a result.
func (s *session) printAcceptance(r *speculate.Result) {
	percent := func(i speculate.Interval) string {
		return fmt.Sprintf("%.1f %% (%.1f–%.1f)", 100*i.Value, 100*i.Low, 100*i.High)
	}
	t := newTable(table.Row{"", "drafter", "acceptance", "by position", "τ", "calls saved", "round"}, 6)
	for i, a := range r.Arms {
		var slots []string
		for _, x := range a.Summary.Slots {
			slots = append(slots, fmt.Sprintf("%.0f", 100*x.Rate))
		}
		cost := fmt.Sprintf("%.3g ms", 1000*a.Summary.RoundCost.Value)
		if r.Speed == "bytes" {
			cost = megabytes(int64(a.Summary.RoundCost.Value))
		}
		name := a.Name
		if a.Bytes > 0 {
			name += " " + megabytes(int64(a.Bytes))
		}
		t.AppendRow(table.Row{armLetter(i), name, percent(a.Summary.Acceptance), strings.Join(slots, " "),
			fmt.Sprintf("%.3f (%.3f–%.3f)", a.Summary.Tau.Value, a.Summary.Tau.Low, a.Summary.Tau.High),
			fmt.Sprintf("%.1f %%", 100*a.Summary.CallsSaved), cost})
	}
	s.printTable(t)
	fmt.Fprintln(s.stdout)
	s.printModes(r)
	if len(r.Arms) == 1 {
		fmt.Fprintln(s.stdout, "measured, not judged: give --b to compare a drafter with this one")
	}
	for i, a := range r.Arms {
		v := a.Verdict
		if v == nil {
			continue
		}
		what := map[string]string{"wall": "time", "bytes": "bytes read"}[r.Speed]
		fmt.Fprintf(s.stdout, "%s against A: acceptance drops by %.2f points (%.2f to %.2f), round ×%.3f faster by %s (%.3f to %.3f), text ×%.3f\n",
			armLetter(i), v.Drop.Value, v.Drop.Low, v.Drop.High, v.Faster.Value, what, v.Faster.Low, v.Faster.High, v.Text.Value)
		if v.Lost+v.Won > 0 {
			fmt.Fprintf(s.stdout, "  first drafts: %d lost, %d won (McNemar p = %.2g, Holm %.2g); τ by prompt: sign test p = %.2g\n", v.Lost, v.Won, v.McNemar, v.Adjusted, v.Sign)
		}
		if v.Pass {
			fmt.Fprintf(s.stdout, "%s %s: at most %.3g points are lost, and the round is faster\n", s.good("PASS"), armLetter(i), r.MaxDrop)
			continue
		}
		for _, reason := range v.Reasons {
			fmt.Fprintf(s.stdout, "%s %s: %s\n", s.bad("FAIL"), armLetter(i), reason)
		}
	}
}

func armLetter(i int) string { return string(rune('A' + i%26)) }

// printModes prints what only live runs know.
func (s *session) printModes(r *speculate.Result) {
	if r.Margin > 0 {
		fmt.Fprintf(s.stdout, "LOSSY: drafts within %g of the best logit were accepted; the text is not the target's own\n", r.Margin)
	}
	t := newTable(table.Row{"", "oracle", "argmax", "chain", "1 − TV by position", "c", "v", "break-even", "predicted", "measured"}, 2, 3, 4, 6, 7, 8, 9, 10)
	rows := 0
	for i, a := range r.Arms {
		if a.Modes == nil {
			continue
		}
		rows++
		m, e := a.Modes, a.Economy
		even := "never"
		if e.BreakEven != nil {
			even = fmt.Sprintf("%.0f %%", 100**e.BreakEven)
		}
		var expected []string
		for _, x := range a.Summary.Slots {
			if x.Expected != nil {
				expected = append(expected, fmt.Sprintf("%.0f", 100**x.Expected))
			}
		}
		t.AppendRow(table.Row{armLetter(i), fmt.Sprintf("%.1f %%", 100*m.Oracle), fmt.Sprintf("%.1f %%", 100*m.Argmax), fmt.Sprintf("%.1f %%", 100*m.Chain),
			strings.Join(expected, " "), fmt.Sprintf("%.3f", e.C), fmt.Sprintf("%.2f", e.V), even, fmt.Sprintf("×%.2f", e.Predicted), fmt.Sprintf("×%.2f", e.Measured)})
	}
	if rows == 0 {
		return
	}
	s.printTable(t)
	fmt.Fprintln(s.stdout, wrap(fmt.Sprintf("c is the time of a drafted token, v that of verifying %s, in decode steps; drafting pays where τ exceeds %d·c + v, "+
		"which is so from the break-even acceptance on", plural(r.Gamma+1, "token"), r.Gamma), 100, ""))
	fmt.Fprintln(s.stdout, wrap(speculate.GapText, 100, ""))
	for i, a := range r.Arms {
		for _, line := range a.Modes.Gap {
			fmt.Fprintf(s.stdout, "%s  %s\n", armLetter(i), wrap(line, 100, "   "))
		}
		for _, d := range []struct {
			what string
			r    *speculate.DriftReport
		}{{"against serial decoding", a.Drift}, {"with drafts written through", a.WriteThrough}} {
			if d.r == nil {
				continue
			}
			if d.r.Drifted == 0 {
				fmt.Fprintf(s.stdout, "%s  %s: no token of %d differs\n", armLetter(i), d.what, d.r.Tokens)
			} else {
				fmt.Fprintf(s.stdout, "%s  %s: %d of %s drift, the first flip after %.0f tokens on average, %.1f %% of tokens differ\n",
					armLetter(i), d.what, d.r.Drifted, plural(d.r.Prompts, "prompt"), d.r.First, 100*d.r.Rate)
			}
		}
	}
	fmt.Fprintln(s.stdout)
}
