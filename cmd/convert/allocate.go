package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/report"
	"github.com/smelt-go/smelt/sensitivity"
)

// allocateFlags are the budget and what restricts it.
type allocateFlags struct {
	bpw, ms           float64
	size, reads       byteSize
	readsPer          []string
	speed             string
	keep, tie, pin    []string
	bits, groups      []int
	methods, codecs   []string
	acceptance        bool
	runtime, strategy string
	minimum, run, low int
	raw               bool
	sweep             string
	steps             int
}

func (s *session) allocateCommand() *cobra.Command {
	var (
		a             allocateFlags
		out, csv, svg string
		of            string
		force, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "allocate MAP --bpw N -o RECIPE",
		Short: "Spend a budget of bits where they help most",
		Long: `Chooses a format for every tensor of a map that sensitivity wrote, so that the
damages add up to as little as possible within a budget that is never exceeded,
and proves how far from the optimum the choice can be. The recipe goes to quantize.

Budgets: --bpw, bits per weight of the whole model, scales, biases and what is kept
counted; --bytes, the size of all tensors; --reads, bytes that a step reads, where
tables of which it takes single rows cost nothing and --reads-per says which tensors
it reads more than once; --ms, the time of those reads at --speed.

--sweep 2.5:8 solves for a range of budgets and prints the front; --csv and --svg
write it to files.

--strategy greedy, threshold, static or uniform is what other tools do, at the same
budget, for comparison.`,
		Example: s.examples(
			"allocate map.json --bpw 4.5 -o recipe.json",
			"allocate map.json --bytes 150MB --keep 'model.layers.0.*' -o recipe.json",
			"allocate map.json --sweep 2.5:8 --csv front.csv --svg front.svg",
			"allocate drafter.json --reads 900MB --reads-per '*markov_w2=7' -o recipe.json"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := readMap(args[0])
			if err != nil {
				return err
			}
			if of != "" {
				model, err := sensitivity.Open(cmd.Context(), of)
				if err != nil {
					return err
				}
				err = model.Belongs(m)
				model.Close()
				if err != nil {
					return err
				}
			}
			if a.acceptance {
				if m, err = m.WithAcceptance(); err != nil {
					return err
				}
			}
			if err := pin(m, a.pin); err != nil {
				return err
			}
			o, err := a.options(m)
			if err != nil {
				return err
			}
			p, err := m.Problem(o)
			if err != nil {
				return err
			}
			if a.sweep != "" {
				return s.sweep(m, p, &a, csv, svg, force, asJSON)
			}
			if err := a.budget(m, p); err != nil {
				return err
			}
			if out != "" {
				if err := fresh(out, force); err != nil {
					return err
				}
			}
			sol, err := solve(m, p, &a)
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeWhole(out, p.Recipe(sol).Marshal()); err != nil {
					return err
				}
			}
			if asJSON {
				return s.printJSON(allocation(m, p, sol))
			}
			return s.printAllocation(m, p, sol, &a, out)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "recipe to write")
	f.Float64Var(&a.bpw, "bpw", 0, "budget: bits per weight, everything counted")
	f.Var(&a.size, "bytes", "budget: size of all tensors")
	f.Var(&a.reads, "reads", "budget: bytes that a step reads")
	f.Float64Var(&a.ms, "ms", 0, "budget: milliseconds that a step takes to read, at --speed")
	f.StringSliceVar(&a.readsPer, "reads-per", nil, "how often a step reads tensors: `PATTERN=N`")
	f.StringVar(&a.speed, "speed", "", "GB/s that formats are read at: a number, or a JSON `FILE` such as {\"default\": 100, \"affine 3-bit g64\": 80}")
	f.StringSliceVar(&a.keep, "keep", nil, "tensors that stay as they are (`PATTERN`; * stands for anything)")
	f.StringSliceVar(&a.pin, "pin", nil, "tensors whose width, and group size, is given: `PATTERN=BITS/GROUP`")
	f.StringSliceVar(&a.tie, "tie", nil, "tensors of a layer that must have one format: `q+k+v`, gate+up")
	f.IntSliceVar(&a.bits, "bits", nil, "use only these widths of the map")
	f.IntSliceVar(&a.groups, "group-size", nil, "use only these group sizes of the map")
	f.StringSliceVar(&a.methods, "method", nil, "use only these methods of the map")
	f.StringSliceVar(&a.codecs, "codec", nil, "use only these codecs of the map, such as affine or turboquant")
	f.BoolVar(&a.acceptance, "acceptance", false, "of a drafter's map: lose as little expected acceptance as possible, rather than KL")
	f.StringVar(&a.runtime, "runtime", "mlx-lm", "use only formats that it loads: mlx-lm, smelt (turboquant, too), or coreml")
	f.IntVar(&a.minimum, "min-per-block", 0, "tensors of every layer that get more than --low bits")
	f.IntVar(&a.run, "max-low-run", 0, "layers in a row that may have most tensors at --low bits or fewer")
	f.IntVar(&a.low, "low", 3, "what the two above call low")
	f.BoolVar(&a.raw, "raw", false, "take damages as measured, also where more bits look worse")
	f.StringVar(&a.strategy, "strategy", "exact", "exact; for comparison greedy, threshold, static or uniform")
	f.StringVar(&a.sweep, "sweep", "", "budgets `LOW:HIGH` in bits per weight")
	f.IntVar(&a.steps, "steps", 23, "budgets of a sweep")
	f.StringVar(&csv, "csv", "", "write the sweep as CSV")
	f.StringVar(&svg, "svg", "", "draw the sweep")
	f.StringVar(&of, "of", "", "check that the map belongs to the checkpoint `DIR`")
	f.BoolVar(&force, "force", false, "replace existing files")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.ValidArgsFunction = nil
	completeValues(cmd, map[string][]string{"strategy": {"exact", "greedy", "threshold", "static", "uniform"}, "runtime": {"mlx-lm", "smelt", "coreml"}})
	return cmd
}

// match finds the tensors that a pattern names.
func match(m *sensitivity.Map, flag, pattern string) ([]string, error) {
	var out []string
	for _, t := range m.Tensors {
		if ok, err := filepath.Match(pattern, t.Path); err != nil {
			return nil, usagef("--%s %s: %v", flag, pattern, err)
		} else if ok {
			out = append(out, t.Path)
		}
	}
	if len(out) == 0 {
		return nil, usagef("--%s %s matches no tensor of the map", flag, pattern)
	}
	return out, nil
}

// options turns flags into those of a problem.
func (a *allocateFlags) options(m *sensitivity.Map) (sensitivity.ProblemOptions, error) {
	o := sensitivity.ProblemOptions{Denoise: !a.raw, Constraints: allocate.Constraints{Low: a.low, MinPerBlock: a.minimum, MaxRun: a.run}}
	for _, k := range a.keep {
		paths, err := match(m, "keep", k)
		if err != nil {
			return o, err
		}
		o.Keep = append(o.Keep, paths...)
	}
	for _, tie := range a.tie {
		classes := strings.Split(tie, "+")
		byLayer := map[int][]string{}
		for _, t := range m.Tensors {
			if slices.Contains(classes, string(t.Class)) {
				byLayer[t.Layer] = append(byLayer[t.Layer], t.Path)
			}
		}
		for l := -1; l < m.Source.Layers; l++ {
			if len(byLayer[l]) > 1 {
				o.Ties = append(o.Ties, byLayer[l])
			}
		}
		if len(byLayer) == 0 {
			return o, usagef("--tie %s: the map has no tensors of these classes", tie)
		}
	}
	if !slices.Contains([]string{"mlx-lm", "smelt", "coreml"}, a.runtime) {
		return o, usagef("--runtime %s: want mlx-lm, smelt or coreml", a.runtime)
	}
	o.Allow = func(f quant.Format) bool {
		coreml := f.Codec == "linear" || f.Codec == "palette"
		if f.Codec == "turboquant" && a.runtime == "mlx-lm" {
			return false
		}
		return coreml == (a.runtime == "coreml") && among(a.codecs, f.Codec) && among(a.bits, f.Bits) && among(a.groups, f.GroupSize) && among(a.methods, string(f.Method))
	}
	switch {
	case a.reads != 0:
		o.Count = sensitivity.Reads
	case a.ms != 0:
		o.Count = sensitivity.Time
		speed, err := a.speeds()
		if err != nil {
			return o, err
		}
		o.Speed = speed
	}
	times := map[string]float64{}
	for _, r := range a.readsPer {
		pattern, n, ok := strings.Cut(r, "=")
		v, err := strconv.ParseFloat(n, 64)
		if !ok || err != nil || !(v >= 0 && v < 1e6) {
			return o, usagef("--reads-per %s: want PATTERN=N", r)
		}
		paths, err := match(m, "reads-per", pattern)
		if err != nil {
			return o, err
		}
		for _, p := range paths {
			times[p] = v
		}
	}
	o.Reads = func(t *sensitivity.Tensor) float64 {
		if v, ok := times[t.Path]; ok {
			return v
		}
		return m.DefaultReads(t)
	}
	return o, nil
}

func among[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// speeds are bytes a second by format.
func (a *allocateFlags) speeds() (func(quant.Format) float64, error) {
	if v, err := strconv.ParseFloat(a.speed, 64); err == nil && v > 0 {
		return func(quant.Format) float64 { return v * 1e9 }, nil
	}
	if a.speed == "" {
		return nil, usagef("--ms needs --speed")
	}
	data, err := os.ReadFile(a.speed)
	if err != nil {
		return nil, err
	}
	table := map[string]float64{}
	if err := json.Unmarshal(data, &table); err != nil {
		return nil, fmt.Errorf("%s: %w (want an object of formats and GB/s)", a.speed, err)
	}
	return func(f quant.Format) float64 {
		plain := f
		plain.Method = ""
		for _, k := range []string{sensitivity.Name(f), sensitivity.Name(plain), "default"} {
			if v, ok := table[k]; ok {
				return v * 1e9
			}
		}
		return 0
	}, nil
}

// budget sets the cap. One that is too small or more than is of use is an
// error that says what would do.
func (a *allocateFlags) budget(m *sensitivity.Map, p *sensitivity.Problem) error {
	given := 0
	for _, v := range []bool{a.bpw != 0, a.size != 0, a.reads != 0, a.ms != 0} {
		if v {
			given++
		}
	}
	if given != 1 {
		return usagef("give one budget: --bpw, --bytes, --reads or --ms")
	}
	switch {
	case a.bpw != 0:
		if !(a.bpw > 0 && a.bpw < 64) {
			return usagef("--bpw %v: want a number of bits", a.bpw)
		}
		p.Cap = m.Cap(a.bpw)
	case a.size != 0:
		p.Cap = int64(a.size)
	case a.reads != 0:
		p.Cap = int64(a.reads)
	default:
		p.Cap = int64(a.ms * 1e9)
	}
	low, high, err := p.Range()
	if err != nil {
		return err
	}
	if p.Cap < low {
		return fmt.Errorf("the budget of %s is too small: the least that the candidates allow is %s", a.amount(m, p.Cap), a.amount(m, low))
	}
	if p.Cap > high {
		return fmt.Errorf("the budget of %s is more than the candidates can use: %s buys all there is (measure wider formats, or lower it)", a.amount(m, p.Cap), a.amount(m, high))
	}
	return nil
}

// amount prints a cost as what the budget counts. The least is rounded up, so
// that what is printed suffices.
func (a *allocateFlags) amount(m *sensitivity.Map, n int64) string {
	switch {
	case a.ms != 0:
		return fmt.Sprintf("%.6f ms", float64(n+500)/1e9)
	case a.reads != 0:
		return fmt.Sprintf("%d bytes a step", n)
	}
	return fmt.Sprintf("%.5f bits per weight (%d bytes)", m.BPW(n)+4e-6, n)
}

// solve chooses by the strategy.
func solve(m *sensitivity.Map, p *sensitivity.Problem, a *allocateFlags) (*allocate.Solution, error) {
	if a.strategy == "exact" {
		return allocate.Solve(p.Problem)
	}
	return p.Compare(a.strategy)
}

// outcome is an allocation for machines.
type outcome struct {
	Bytes       int64                   `json:"bytes"`
	BPW         float64                 `json:"bits_per_weight"`
	Cost        int64                   `json:"cost"`
	Cap         int64                   `json:"cap"`
	Damage      float64                 `json:"damage"`
	LowerBound  float64                 `json:"lower_bound"`
	Gap         float64                 `json:"gap"`
	PricePerMB  float64                 `json:"price_per_unit_1e6"`
	Allocations map[string]quant.Format `json:"formats"`
}

func allocation(m *sensitivity.Map, p *sensitivity.Problem, s *allocate.Solution) outcome {
	b := p.Bytes(s)
	return outcome{b, m.BPW(b), s.Cost, p.Cap, s.Damage, s.LowerBound, s.Gap(), s.Price * 1e6, p.Formats(s)}
}

func (s *session) printAllocation(m *sensitivity.Map, p *sensitivity.Problem, sol *allocate.Solution, a *allocateFlags, out string) error {
	t := newTable(table.Row{"class", "format", "tensors", "size", "damage"}, 3, 4, 5)
	for _, r := range p.Classes(sol) {
		t.AppendRow(table.Row{r.Class, r.Format, r.Tensors, megabytes(r.Bytes), fmt.Sprintf("%.5f", r.Damage)})
	}
	s.printTable(t)
	b := p.Bytes(sol)
	say := func(what, format string, args ...any) {
		fmt.Fprintf(s.stdout, "%-12s"+format+"\n", append([]any{what}, args...)...)
	}
	fmt.Fprintln(s.stdout)
	say("size", "%d bytes, %.4f bits per weight, everything counted; budget %s", b, m.BPW(b), a.amount(m, p.Cap))
	if m.Drafter != nil {
		say("reads", "%d bytes in a round of %s", readBytes(m, p, sol), plural(m.Drafter.Gamma, "draft"))
	}
	what := "predicted"
	if a.acceptance {
		what = "of drafts less accepted, predicted"
	}
	say("damage", "%.6f %s", sol.Damage, what)
	if a.strategy != "exact" {
		best, err := allocate.Solve(p.Problem)
		if err == nil {
			say("optimum", "%.6f within the same budget", best.Damage)
		}
	} else {
		say("certificate", "no choice within the budget is below %.6f: gap at most %.4f %%", sol.LowerBound, 100*sol.Gap())
		unit, step := "MB", int64(1_000_000)
		if a.ms != 0 {
			unit, step = "ms", 1e9/10
		}
		if a.ms == 0 {
			say("price", "%.3g a %s", sol.Price*float64(step), unit)
		} else {
			say("price", "%.3g a %s", sol.Price*1e9, unit)
		}
		more := p.Problem
		more.Cap += step
		next, err := allocate.Solve(more)
		if err != nil {
			return err
		}
		name := "next MB"
		if a.ms != 0 {
			name = "next 0.1 ms"
		}
		say(name, "%s", p.Difference(sol, next))
		if text := apart(m, p, sol); text != "" {
			say("apart", "%s", text)
		}
	}
	if out != "" {
		say("recipe", "%s", out)
	}
	return nil
}

// sweep solves for a range of budgets.
func (s *session) sweep(m *sensitivity.Map, p *sensitivity.Problem, a *allocateFlags, csv, svg string, force, asJSON bool) error {
	lo, hi, ok := strings.Cut(a.sweep, ":")
	from, err1 := strconv.ParseFloat(lo, 64)
	to, err2 := strconv.ParseFloat(hi, 64)
	if !ok || err1 != nil || err2 != nil || !(from > 0 && to > from && to < 64) || a.steps < 2 || a.steps > 1000 {
		return usagef("--sweep %s --steps %d: want LOW:HIGH in bits per weight, and 2 to 1000 steps", a.sweep, a.steps)
	}
	if p.Count != sensitivity.Bytes {
		return usagef("--sweep goes through sizes: it takes no --reads and no --ms")
	}
	for _, f := range []string{csv, svg} {
		if f != "" {
			if err := fresh(f, force); err != nil {
				return err
			}
		}
	}
	front, err := report.Sweep(p, from, to, a.steps)
	if err != nil {
		return err
	}
	if csv != "" {
		if err := writeWhole(csv, report.CSV(front)); err != nil {
			return err
		}
	}
	if svg != "" {
		if err := writeWhole(svg, report.FrontSVG(front, nil)); err != nil {
			return err
		}
	}
	if asJSON {
		return s.printJSON(front)
	}
	t := newTable(table.Row{"budget", "bits/weight", "bytes", "damage", "bound", "gap", "price/MB", "widths"}, 1, 2, 3, 4, 5, 6, 7)
	for _, f := range front {
		t.AppendRow(table.Row{fmt.Sprintf("%.3f", f.Budget), fmt.Sprintf("%.4f", f.BPW), commas(f.Bytes), fmt.Sprintf("%.5f", f.Damage),
			fmt.Sprintf("%.5f", f.LowerBound), fmt.Sprintf("%.4f %%", 100*f.Gap), fmt.Sprintf("%.2e", f.PricePerMB), f.Widths})
	}
	s.printTable(t)
	return nil
}
