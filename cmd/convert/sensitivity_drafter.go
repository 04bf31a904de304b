package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/capture"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/replay"
	"github.com/smelt-go/smelt/sensitivity"
)

// statesFlags name what a drafter is measured on.
type statesFlags struct {
	states, target string
	taps           []int
	reading        string
	gamma, every   int
}

func (f *statesFlags) define(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.states, "states", "", "`DIR` of states that capture wrote: of a text that its target has been through")
	fs.IntSliceVar(&f.taps, "taps", nil, "of an EAGLE-3 drafter: the three layers whose outputs it reads (default: by its rule)")
	fs.StringVar(&f.reading, "reading", "", "of a block drafter whose files contradict each other: anchor or masks")
	fs.IntVar(&f.gamma, "gamma", 0, "drafts a round (default: 3, or as many as the drafter gives)")
	fs.IntVar(&f.every, "every", 1, "tokens from one place where drafts begin to the next")
	_ = cmd.MarkFlagDirname("states")
	completeValues(cmd, map[string][]string{"reading": {models.ReadAnchor, models.ReadMasks}})
}

// drafting is a drafter with the states of its target.
type drafting struct {
	drafter *replay.Drafter
	states  *sensitivity.DraftStates
	target  *sensitivity.Model
}

func (d *drafting) close() {
	if d.drafter != nil {
		d.drafter.Close()
	}
	if d.target != nil {
		d.target.Close()
	}
}

// open opens the drafter in dir, the states and their target.
func (f *statesFlags) open(ctx context.Context, dir string) (*drafting, error) {
	if f.states == "" || f.target == "" {
		return nil, usagef("a drafter is measured on captured states of its target: give --states DIR and --target DIR (states come from capture TARGET --drafter %s)", dir)
	}
	states, err := capture.Open(f.states)
	if err != nil {
		return nil, err
	}
	d := &drafting{}
	if d.target, err = sensitivity.Open(ctx, f.target); err != nil {
		return nil, err
	}
	if d.drafter, err = replay.Open(dir, replay.OpenOptions{Target: d.target.Decoder, Taps: f.taps, Reading: f.reading}); err == nil {
		d.states, err = sensitivity.NewDraftStates(d.drafter, states, d.target)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (s *session) drafterSensitivityCommand() *cobra.Command {
	var (
		f             statesFlags
		bits, groups  []int
		codecs        []string
		methods       []string
		out, shard    string
		o             sensitivity.DrafterOptions
		force, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "drafter DIR --states STATES --target TARGET -o MAP",
		Short: "Measure what the bits of a drafter cost",
		Long: `Stores one matrix of a drafter at a time in every candidate format and measures, on
states that its target has left on a text, what becomes of its drafts at every
position: how far their distribution moves (KL divergence, in nats), and how much
less of it the target would accept (1 − TV). The target does not run; its head says
what it predicts. Any drafter that can be converted will do, and ordinary models.

MAP counts what a round of drafts reads: nothing of a table of which it takes rows,
a bigram head once a draft. allocate --reads is a budget of that, and --acceptance
minimizes the acceptance that is lost.

Runs that were stopped go on, and --shard and merge work, as in sensitivity.`,
		Example: s.examples(
			"capture ./target --drafter ./drafter --text calibration.jsonl --sequences 32 -o states",
			"sensitivity drafter ./drafter --states states --target ./target -o map.json",
			"sensitivity drafter ./drafter --states states --target ./target -o turbo.json --codec turboquant --method feedback --group-size 32,64"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("sensitivity drafter: say where to write: -o MAP")
			}
			if err := fresh(out, force); err != nil {
				return err
			}
			var err error
			if o.Shard, err = parseShard(shard); err != nil {
				return usageError{err}
			}
			if o.Formats, err = drafterCandidates(codecs, bits, groups, methods); err != nil {
				return usageError{err}
			}
			d, err := f.open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer d.close()
			o.Gamma, o.Every = f.gamma, f.every
			o.Journal = out + ".partial"
			o.Warn = func(t string) { s.warn(t) }
			bars := s.newBars(cmd.Context())
			start := time.Now()
			o.Progress = s.eta(bars, start)
			m, err := sensitivity.MeasureDrafter(cmd.Context(), d.drafter, args[0], d.states, o)
			bars.close()
			if err != nil {
				if errors.Is(err, context.Canceled) {
					return fmt.Errorf("interrupted; start again with the same flags to go on (%s)", o.Journal)
				}
				return err
			}
			if err := writeWhole(out, m.Marshal()); err != nil {
				return err
			}
			if err := os.Remove(o.Journal); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if asJSON {
				return s.printJSON(m)
			}
			s.printDrafting(m, out, time.Since(start))
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&out, "output", "o", "", "file to write the map to")
	f.define(cmd)
	fl.StringVar(&f.target, "target", "", "checkpoint `DIR` of the target whose states these are")
	fl.StringSliceVar(&codecs, "codec", []string{"affine"}, "candidate codecs: affine, turboquant")
	fl.IntSliceVar(&bits, "bits", []int{3, 4, 5, 6, 8}, "candidate widths")
	fl.IntSliceVar(&groups, "group-size", []int{64}, "candidate group sizes: 32, 64, 128")
	fl.StringSliceVar(&methods, "method", []string{"rtn"}, "how candidates' codes are found: rtn, refit, feedback; the last two learn from the states")
	fl.Uint64Var(&o.Seed, "seed", 42, "what is drawn from unlikely tokens")
	fl.StringVar(&shard, "shard", "", "measure one part of several: `i/n`")
	fl.BoolVar(&force, "force", false, "replace an existing map")
	fl.BoolVar(&asJSON, "json", false, "print the map")
	_ = cmd.MarkFlagDirname("target")
	completeDirs(cmd)
	return cmd
}

// drafterCandidates are all combinations that exist.
func drafterCandidates(codecs []string, bits, groups []int, methods []string) ([]quant.Format, error) {
	var out []quant.Format
	for _, c := range codecs {
		if c == "affine" {
			more, err := candidates(bits, groups, methods)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
			continue
		}
		if c != "turboquant" {
			return nil, fmt.Errorf("--codec %s: want affine or turboquant", c)
		}
		for _, name := range methods {
			m, err := quant.ParseMethod(name)
			if err != nil {
				return nil, err
			}
			for _, b := range bits {
				for _, g := range groups {
					if _, err := quant.NewTurbo(b, g); err != nil {
						return nil, err
					}
					out = append(out, quant.Format{Codec: c, Bits: b, GroupSize: g, Method: m})
				}
			}
		}
	}
	return out, nil
}

func (s *session) printDrafting(m *sensitivity.Map, out string, took time.Duration) {
	d := m.Drafter
	slots := func(x []float64, format string) string {
		var all []string
		for _, v := range x {
			all = append(all, fmt.Sprintf(format, v))
		}
		return strings.Join(all, " ")
	}
	scaled := func(x []float64, f float64) []float64 {
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = f * v
		}
		return y
	}
	t := newTable(table.Row{"tensor", "format", "size", "read a round", "KL by position", "acceptance lost by position", "lost"}, 3, 4, 7)
	probes := 0
	for _, x := range m.Tensors {
		for _, c := range x.Candidates {
			probes++
			t.AppendRow(table.Row{x.Path, sensitivity.Name(c.Format), megabytes(c.Bytes), megabytes(int64(*x.Reads * float64(c.Bytes))),
				slots(c.Draft.KL, "%.5f"), slots(scaled(c.Draft.Loss, 100), "%+.2f"), fmt.Sprintf("%+.3f ± %.3f points", 100*c.Draft.Lost, 100*c.Draft.LostError)})
		}
	}
	s.printTable(t)
	fmt.Fprintf(s.stdout, "\n%s: %s of %s in %.1f s; the target did not run\n", out, plural(probes, "candidate"), plural(len(m.Tensors), "tensor"), took.Seconds())
	fmt.Fprintf(s.stdout, "%s, %s of %s; as it is: 1 − TV by position %s, first choice the target's %s\n", d.Kind, plural(d.Bases, "place"), plural(d.Gamma, "draft"),
		slots(scaled(d.Acceptance, 100), "%.1f %%"), slots(scaled(d.Agreement, 100), "%.1f %%"))
}

// inputs makes quantize learn from captured states.
func (f *statesFlags) inputs(ctx context.Context, dir string, o *mlx.Options) (func(), error) {
	d, err := f.open(ctx, dir)
	if err != nil {
		return nil, err
	}
	in, err := sensitivity.DraftInputs(ctx, d.drafter, d.states, f.gamma, f.every)
	if err != nil {
		d.close()
		return nil, err
	}
	o.Inputs = in
	return d.close, nil
}

// needsOf is what a drafter asks to be captured of its target.
func needsOf(dir string, target *sensitivity.Model, taps []int, o *capture.Options) error {
	d, err := replay.Open(dir, replay.OpenOptions{Target: target.Decoder, Taps: taps})
	if err != nil {
		return err
	}
	defer d.Close()
	n := d.Needs()
	o.Taps, o.Norms, o.Keys = n.Taps, []string{capture.Post}, nil
	if n.Norm == capture.Pre {
		o.Norms = []string{capture.Pre, capture.Post}
	}
	for _, k := range []string{"full", "sliding"} {
		if _, ok := n.Keys[k]; ok {
			o.Keys = append(o.Keys, k)
		}
	}
	if o.DType == 0 {
		o.DType = checkpoint.BF16
	}
	return nil
}

// readBytes is what a round reads of a drafter whose matrices are stored as a
// solution says.
func readBytes(m *sensitivity.Map, p *sensitivity.Problem, s *allocate.Solution) int64 {
	formats := p.Formats(s)
	n := float64(m.KeptBytes)
	for _, t := range m.Tensors {
		size := t.Bytes
		for _, c := range t.Candidates {
			if f, ok := formats[t.Path]; ok && c.Format == f {
				size = c.Bytes
			}
		}
		n += m.DefaultReads(&t) * float64(size)
	}
	return int64(n)
}
