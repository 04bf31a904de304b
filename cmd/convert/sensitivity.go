package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/calibration/mix"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/sensitivity"
	"github.com/smelt-go/smelt/tokenizer"
)

// textFlags choose what is measured on.
type textFlags struct {
	file string
	o    sensitivity.TextOptions
}

func (t *textFlags) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.file, "text", "", "calibration `FILE`: JSON lines of {\"domain\", \"text\"}, or plain text (default: a built-in mix)")
	f.IntVar(&t.o.Sequences, "sequences", 8, "sequences to measure on; domains take turns")
	f.IntVar(&t.o.Tokens, "tokens", 64, "tokens of a sequence")
	f.Uint64Var(&t.o.Seed, "seed", 42, "what is drawn from the text, and from unlikely tokens")
}

// sequences reads the text.
func (s *session) sequences(t *textFlags, dir string) ([][]int32, *sensitivity.Calibration, error) {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, nil, err
	}
	data := mix.JSONL()
	if t.file != "" {
		if data, err = os.ReadFile(t.file); err != nil {
			return nil, nil, err
		}
	}
	texts, err := sensitivity.ParseTexts(data)
	if err != nil {
		return nil, nil, named(t.file, err)
	}
	seq, cal, warnings, err := sensitivity.Sequences(tok, texts, t.o)
	s.warn(warnings...)
	return seq, cal, named(t.file, err)
}

// named puts the name of a file before an error.
func named(file string, err error) error {
	if err == nil || file == "" {
		return err
	}
	return fmt.Errorf("%s: %w", file, err)
}

func (s *session) warn(texts ...string) {
	for _, w := range texts {
		fmt.Fprintf(s.stderr, "%s: warning: %s\n", s.name, w)
	}
}

func (s *session) sensitivityCommand() *cobra.Command {
	var (
		text          textFlags
		bits, groups  []int
		methods       []string
		out, shard    string
		recipe, after string
		probes        []int
		cal           calibrationFlags
		o             sensitivity.Options
		force, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "sensitivity DIR -o MAP",
		Short: "Measure what each tensor's bits cost",
		Long: `Stores one tensor at a time in every candidate format and measures how far the
model's predictions move (KL divergence from the original, in nats). MAP is JSON;
allocate turns it into a recipe, report into a page.

A run that was stopped, in whatever way, goes on where it was when started again
with the same flags; until then MAP.partial holds what was found. With
--shard i/n it measures the i-th of n parts; sensitivity merge joins them.

--estimator noise asks the model once a tensor, not once a candidate; --estimator
scaled as often as --probe-bits says, and works the other candidates out from their
errors.

--base RECIPE stores everything by the recipe while one tensor varies, which counts
what tensors do to each other, and with --method best and --calibration what layers
make up for. With --after MAP it is a second round: the recipe was made from MAP.`,
		Example: s.examples(
			"sensitivity ./gemma-3-270m -o map.json",
			"sensitivity ./gemma-3-270m -o map.json --bits 3,4,5,6,8 --group-size 64,128 --text calibration.jsonl",
			"sensitivity ./gemma-3-270m -o map.json --method best --calibration text.txt --base start.json --estimator scaled --probe-bits 3,5",
			"sensitivity ./gemma-3-270m -o part1.json --shard 1/4",
			"sensitivity merge part1.json part2.json part3.json part4.json -o map.json"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("sensitivity: say where to write: -o MAP")
			}
			if err := fresh(out, force); err != nil {
				return err
			}
			var err error
			if o.Shard, err = parseShard(shard); err != nil {
				return usageError{err}
			}
			if o.Formats, err = candidates(bits, groups, methods); err != nil {
				return usageError{err}
			}
			if recipe == "" && after != "" {
				return usagef("sensitivity: --after takes a --base: the recipe that was made from the map")
			}
			if (o.Estimator == sensitivity.Scaled) != (probes != nil) {
				return usagef("sensitivity: --estimator scaled and --probe-bits go together")
			}
			o.Probed = func(f quant.Format) bool { return slices.Contains(probes, f.Bits) && f.GroupSize == groups[0] }
			var first *sensitivity.Map
			if recipe != "" {
				if o.Base, err = readRecipe(recipe); err != nil {
					return err
				}
				if after != "" {
					if first, err = readMap(after); err != nil {
						return err
					}
				}
				if shard != "" {
					return usagef("sensitivity: --base takes no --shard")
				}
			}
			m, err := sensitivity.Open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer m.Close()
			if first != nil {
				if err := m.Belongs(first); err != nil {
					return err
				}
			}
			seq, measuredOn, err := s.sequences(&text, args[0])
			if err != nil {
				return err
			}
			o.Sequences, o.Calibration = seq, *measuredOn
			if o.Coding, err = cal.coding(args[0]); err != nil {
				return err
			}
			o.Journal = out + ".partial"
			o.Warn = func(t string) { s.warn(t) }
			bars := s.newBars(cmd.Context())
			start := time.Now()
			o.Progress = s.eta(bars, start)
			rep, err := sensitivity.Measure(cmd.Context(), m, o)
			bars.close()
			if err != nil {
				if errors.Is(err, context.Canceled) {
					return fmt.Errorf("interrupted; start again with the same flags to go on (%s)", o.Journal)
				}
				return err
			}
			alone := 0.0
			switch {
			case first != nil:
				rep, err = sensitivity.Recenter(first, rep, o.Base)
			case o.Base != nil:
				rep, alone, err = sensitivity.Settle(rep, o.Base)
			}
			if err != nil {
				return err
			}
			if err := writeWhole(out, rep.Marshal()); err != nil {
				return err
			}
			if err := os.Remove(o.Journal); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if asJSON {
				return s.printJSON(rep)
			}
			s.printSensitivity(rep, out, time.Since(start))
			if alone > 0 {
				fmt.Fprintf(s.stdout, "the recipe's divergence: %.5f; single changes make it %.5f\n", rep.BaseDamage, alone*rep.BaseDamage)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "file to write the map to")
	f.IntSliceVar(&bits, "bits", []int{3, 4, 5, 6, 8}, "candidate widths of affine codes")
	f.IntSliceVar(&groups, "group-size", []int{64}, "candidate group sizes: 32, 64, 128")
	f.StringSliceVar(&methods, "method", []string{"rtn"}, "how candidates' codes are found; measure with the one you will use")
	f.StringVar(&o.Estimator, "estimator", sensitivity.KL, "kl, scaled: candidates of --probe-bits, or noise: one probe a tensor; the rest by squared error")
	f.BoolVar(&o.Probe, "noise", false, "probe with noise as well, to see how well it would have estimated")
	f.IntSliceVar(&probes, "probe-bits", nil, "widths that --estimator scaled measures, in the first group size")
	cal.define(cmd)
	f.StringVar(&recipe, "base", "", "measure around this recipe `FILE`")
	f.StringVar(&after, "after", "", "the `MAP` that the recipe of --base was made from")
	f.StringVar(&shard, "shard", "", "measure one part of several: `i/n`")
	f.IntVar(&o.BatchTokens, "batch-tokens", 0, "tokens that run together: memory against speed (default 8192)")
	f.BoolVar(&force, "force", false, "replace an existing map")
	f.BoolVar(&asJSON, "json", false, "print the map")
	text.define(cmd)
	completeDirs(cmd)
	completeValues(cmd, map[string][]string{"estimator": {sensitivity.KL, sensitivity.Scaled, sensitivity.Noise}})
	cmd.AddCommand(s.mergeCommand(), s.combineCommand(), s.importCommand(), s.exportCommand(), s.verifyCommand(), s.drafterSensitivityCommand())
	return cmd
}

// define adds the flags that say what methods refit, feedback and best code with.
func (c *calibrationFlags) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.file, "calibration", "", "text `FILE` that methods refit, feedback and best code with, as quantize would")
	f.IntVar(&c.windows, "calibration-windows", calibration.DefaultWindows, "windows of 512 tokens of it")
	f.Float64Var(&c.correction, "correction", mlx.DefaultCorrection, "part of the drift of its inputs that a layer makes up for, with --method best: 0 to 1")
}

// coding is what calibrated methods code with; nothing without a text.
func (c *calibrationFlags) coding(dir string) (sensitivity.Coding, error) {
	if c.file == "" {
		return sensitivity.Coding{}, nil
	}
	all, err := c.load(dir, quant.Uniform(4, 64))
	if err != nil {
		return sensitivity.Coding{}, err
	}
	return sensitivity.Coding{Windows: all.Windows, Correction: all.Correction}, nil
}

// eta shows progress, as lines with an estimate where there is no terminal.
func (s *session) eta(b *bars, start time.Time) func(string, int64, int64) {
	last := start
	return func(stage string, done, total int64) {
		if b.pool != nil {
			b.update(stage, done, total)
			return
		}
		if done > 0 && time.Since(last) > 15*time.Second {
			last = time.Now()
			left := time.Duration(float64(time.Since(start)) * float64(total-done) / float64(done))
			fmt.Fprintf(s.stderr, "%s: %s: %d %%, about %v left\n", s.name, stage, 100*done/max(total, 1), left.Round(time.Second))
		}
	}
}

// parseShard reads i/n; "" is nil.
func parseShard(text string) (*sensitivity.Shard, error) {
	if text == "" {
		return nil, nil
	}
	a, b, ok := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil || i < 1 || i > n {
		return nil, fmt.Errorf("--shard %s: want i/n, from 1/n to n/n", text)
	}
	return &sensitivity.Shard{Index: i, Count: n}, nil
}

// candidates are all combinations.
func candidates(bits, groups []int, methods []string) ([]quant.Format, error) {
	var out []quant.Format
	for _, name := range methods {
		m, err := quant.ParseMethod(name)
		if err != nil {
			return nil, err
		}
		for _, b := range bits {
			for _, g := range groups {
				if _, err := quant.NewAffine(b, g, ""); err != nil {
					return nil, err
				}
				out = append(out, quant.Format{Codec: "affine", Bits: b, GroupSize: g, Method: m})
			}
		}
	}
	return out, nil
}

func readRecipe(file string) (*quant.Recipe, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r, err := quant.ParseRecipe(data)
	return r, named(file, err)
}

func readMap(file string) (*sensitivity.Map, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m, err := sensitivity.Parse(data)
	return m, named(file, err)
}

func (s *session) printSensitivity(m *sensitivity.Map, out string, took time.Duration) {
	t := newTable(table.Row{"class", "format", "tensors", "size", "damage", "largest", "at"}, 3, 4, 5, 6)
	for _, r := range m.Summary() {
		t.AppendRow(table.Row{r.Class, r.Format, r.Tensors, megabytes(r.Bytes), fmt.Sprintf("%.5f", r.Damage), fmt.Sprintf("%.5f", r.Largest), r.At})
	}
	s.printTable(t)
	probes := 0
	for _, x := range m.Tensors {
		probes += len(x.Candidates)
	}
	fmt.Fprintf(s.stdout, "\n%s: %s of %s in %.1f s\n", out, plural(probes, "candidate"), plural(len(m.Tensors), "tensor"), took.Seconds())
	for _, c := range m.Correlations() {
		fmt.Fprintf(s.stdout, "rank correlation of damage with %s: %.3f\n", c.Of, c.Rho)
	}
}
