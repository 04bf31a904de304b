package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/tokenizer"
)

// recipeFlags choose a recipe; at most one of the three ways.
type recipeFlags struct {
	file, preset           string
	bits, group            int
	mode, method, rounding string
	keep                   bool
}

func (s *session) quantizeCommand() *cobra.Command {
	var (
		o                           mlx.Options
		r                           recipeFlags
		cal                         calibrationFlags
		head                        drafterFlags
		out, dt                     string
		asJSON, printRecipe, decode bool
	)
	cmd := &cobra.Command{
		Use:   "quantize DIR -o OUT",
		Short: "Quantize a Hugging Face directory into an MLX directory",
		Long: `Writes the model in DIR as an MLX directory that mlx-lm loads. OUT appears whole
or not at all, and an existing one is kept unless --force is given. The same model
and flags give the same bytes on every machine.

What is stored how comes from a recipe: a JSON file (--recipe), a named one
(--preset), or one format for all (--bits and --group-size, or --mode). The default
is 4 bits in groups of 64. --print-recipe prints it, to be edited.

With --method rtn the bits are those of mlx. With refit the format and the size
are the same, and the weights are closer to the original.`,
		Example: s.examples(
			"quantize ./gemma-3-270m -o gemma-4bit",
			"quantize ./gemma-3-270m -o gemma-3bit --bits 3 --method refit",
			"quantize ./Qwen3-0.6B -o qwen-mixed --preset mixed_3_6",
			"quantize ./Qwen3-0.6B --preset mixed_3_6 --print-recipe > recipe.json",
			"quantize ./Qwen3-0.6B -o qwen --recipe recipe.json --json",
			"quantize ./gemma-4bit -o gemma-bf16 --dequantize"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" && !printRecipe {
				return usagef("quantize: say where to write: -o OUT")
			}
			if err := head.check(cmd); err != nil {
				return err
			}
			if decode {
				for _, flag := range []string{"recipe", "preset", "bits", "group-size", "mode", "method", "rounding", "dtype", "requantize", "print-recipe", "json"} {
					if cmd.Flags().Changed(flag) {
						return usagef("--dequantize and --%s exclude each other", flag)
					}
				}
				if err := mlx.Dequantize(cmd.Context(), args[0], out, o.Force); err != nil {
					return err
				}
				fmt.Fprintf(s.stdout, "%s: decoded weights of %s\n", out, args[0])
				return nil
			}
			recipe, err := r.recipe(cmd, args[0])
			if err != nil {
				return err
			}
			if printRecipe {
				_, err := s.stdout.Write(recipe.Marshal())
				return err
			}
			if o.DType, err = optional(dt, parseFloatType); err != nil {
				return usageError{err}
			}
			o.Recipe = recipe
			if head.states != "" {
				done, err := head.inputs(cmd.Context(), args[0], &o)
				if err != nil {
					return err
				}
				defer done()
			} else if o.Calibration, err = cal.load(args[0], recipe); err != nil {
				return err
			}
			if cal.short != "" {
				fmt.Fprintf(s.stderr, "%s: warning: %s\n", s.name, cal.short)
			}
			if head.on {
				return s.quantizeDrafter(cmd, &head, args[0], out, o, asJSON)
			}
			bars := s.newBars(cmd.Context())
			o.Progress = bars.update
			start := time.Now()
			rep, err := mlx.Quantize(cmd.Context(), args[0], out, o)
			bars.close()
			if err != nil {
				return err
			}
			for _, w := range rep.Warnings {
				fmt.Fprintf(s.stderr, "%s: warning: %s\n", s.name, w)
			}
			if asJSON {
				return s.printJSON(rep)
			}
			s.printQuantization(rep, args[0], out, time.Since(start))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "directory to write the model to")
	f.StringVar(&r.file, "recipe", "", "recipe `FILE` (JSON)")
	f.StringVar(&r.preset, "preset", "", "recipe by name: "+strings.Join(quant.Presets(), ", "))
	f.IntVar(&r.bits, "bits", 4, "bits of affine codes: 2, 3, 4, 5, 6 or 8")
	f.IntVar(&r.group, "group-size", 64, "weights that share a scale and a bias: 32, 64 or 128")
	f.StringVar(&r.mode, "mode", "affine", "format: affine, mxfp4, mxfp8 or nvfp4")
	f.StringVar(&r.method, "method", "", "how codes are found: rtn (the bits of mlx), refit (less error), and with a calibration feedback or best")
	f.StringVar(&cal.file, "calibration", "", "text `FILE` to calibrate on: plain text, or JSON lines of domain and text")
	f.IntVar(&cal.windows, "calibration-windows", calibration.DefaultWindows, "how many windows of 512 tokens to calibrate on")
	f.Float64Var(&cal.correction, "correction", mlx.DefaultCorrection, "part of the drift of its inputs that a layer makes up for, with --method best: 0 to 1")
	f.StringVar(&r.rounding, "rounding", "", "variant of affine: cpu or metal, which differ in about 0.2 % of codes")
	f.BoolVar(&r.keep, "keep-indivisible", false, "keep weights whose columns are no multiple of the group size")
	f.StringVar(&dt, "dtype", "", "cast weights to bf16, f16 or f32 first (default: torch_dtype of config.json)")
	f.BoolVar(&o.Requantize, "requantize", false, "accept a source that is quantized already")
	f.BoolVarP(&decode, "dequantize", "d", false, "decode a quantized MLX directory instead")
	head.register(cmd)
	f.BoolVar(&printRecipe, "print-recipe", false, "print the recipe and do nothing")
	f.BoolVar(&o.Force, "force", false, "replace an existing directory")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	completeDirs(cmd)
	completeValues(cmd, map[string][]string{"preset": quant.Presets(), "mode": {"affine", "mxfp4", "mxfp8", "nvfp4"},
		"method": methodNames(), "rounding": {"cpu", "metal"}, "dtype": {"bf16", "f16", "f32"}})
	return cmd
}

// calibrationFlags say what to calibrate on.
type calibrationFlags struct {
	file       string
	windows    int
	correction float64
	short      string // says so, if the text is shorter than wanted
}

// load makes windows for the model in dir; nil if there is no calibration.
func (c *calibrationFlags) load(dir string, r *quant.Recipe) (*mlx.Calibration, error) {
	if c.file == "" {
		methods := []quant.Method{r.Default.Method}
		for _, rule := range r.Rules {
			methods = append(methods, rule.Method)
		}
		for _, m := range methods {
			if m.Calibrated() {
				return nil, usagef("--method %s learns from a text: give one with --calibration FILE (a few hundred kB of what the model is for; plain text, or JSON lines of domain and text)", m)
			}
		}
		return nil, nil
	}
	if c.correction < 0 || c.correction > 1 || c.windows < 1 {
		return nil, usagef("--correction %g --calibration-windows %d: want 0 to 1, and at least 1 window", c.correction, c.windows)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	texts, err := calibration.ReadTexts(c.file)
	if err != nil {
		return nil, err
	}
	windows, err := calibration.Windows(tok, texts, calibration.DefaultWindow, c.windows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	if len(windows) < c.windows {
		c.short = fmt.Sprintf("%s has text for %s of %d tokens, of %d: codes may fit it and little else (give a longer one)", c.file, plural(len(windows), "window"), calibration.DefaultWindow, c.windows)
	}
	return &mlx.Calibration{Windows: windows, Correction: c.correction}, nil
}

func methodNames() (names []string) {
	for _, m := range quant.Methods {
		names = append(names, string(m))
	}
	return names
}

// recipe is what the flags say about the model in dir.
func (r *recipeFlags) recipe(cmd *cobra.Command, dir string) (*quant.Recipe, error) {
	given := []string{}
	for _, group := range [][]string{{"recipe"}, {"preset"}, {"mode"}, {"bits", "group-size", "rounding"}} {
		for _, flag := range group {
			if cmd.Flags().Changed(flag) && (flag != "mode" || r.mode != "affine") {
				given = append(given, "--"+flag)
				break
			}
		}
	}
	if len(given) > 1 {
		return nil, usagef("%s exclude each other", strings.Join(given, " and "))
	}
	var recipe *quant.Recipe
	switch {
	case r.file != "":
		data, err := os.ReadFile(r.file)
		if err != nil {
			return nil, err
		}
		if recipe, err = quant.ParseRecipe(data); err != nil {
			return nil, fmt.Errorf("%s: %w", r.file, err)
		}
	case r.preset != "":
		layers, err := mlx.Layers(dir)
		if err != nil {
			return nil, err
		}
		if recipe, err = quant.Preset(r.preset, layers); err != nil {
			return nil, usageError{err}
		}
	case r.mode != "affine":
		recipe = &quant.Recipe{Target: quant.TargetMLX, Default: quant.Format{Codec: r.mode}}
	default:
		recipe = quant.Uniform(r.bits, r.group)
		recipe.Default.Rounding = quant.Rounding(r.rounding)
	}
	recipe.KeepIndivisible = recipe.KeepIndivisible || r.keep
	if r.method != "" {
		m, err := quant.ParseMethod(r.method)
		if err != nil {
			return nil, usageError{err}
		}
		recipe.Default.Method = m
	}
	if err := recipe.Validate(); err != nil {
		return nil, err
	}
	return recipe, nil
}

// compressionRecipe is the recipe for Core ML that --quantize names: a preset or
// a file.
func compressionRecipe(dir, name, method string) (*quant.Recipe, error) {
	if name == "" {
		if method != "" {
			return nil, usagef("--method says how --quantize finds codes: give a recipe")
		}
		return nil, nil
	}
	var r *quant.Recipe
	if slices.Contains(quant.Presets(), name) {
		layers, err := mlx.Layers(dir)
		if err != nil {
			return nil, err
		}
		if r, err = quant.Preset(name, layers); err != nil {
			return nil, err
		}
	} else {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("--quantize %s is neither a preset (%s) nor a file: %w", name, strings.Join(quant.Presets(), ", "), err)
		}
		if r, err = quant.ParseRecipe(data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if method != "" {
		m, err := quant.ParseMethod(method)
		if err != nil {
			return nil, usageError{err}
		}
		r.Default.Method = m
	}
	return r, nil
}

// printCompressed lists what became of weights.
func (s *session) printCompressed(classes []conversion.CompressedClass) {
	if len(classes) == 0 {
		return
	}
	t := newTable(table.Row{"class", "format", "weights", "parameters", "size", "bits/weight", "relative MSE"}, 3, 4, 5, 6, 7)
	for _, c := range classes {
		t.AppendRow(table.Row{c.Class, c.Format, c.Weights, commas(c.Parameters), megabytes(c.Bytes), fmt.Sprintf("%.3f", c.BPW), fmt.Sprintf("%.3e", c.RelativeMSE)})
	}
	s.printTable(t)
	fmt.Fprintln(s.stdout)
}

func parseFloatType(s string) (checkpoint.DType, error) {
	dt, ok := map[string]checkpoint.DType{"bf16": checkpoint.BF16, "bfloat16": checkpoint.BF16, "f16": checkpoint.F16,
		"float16": checkpoint.F16, "f32": checkpoint.F32, "float32": checkpoint.F32}[s]
	if !ok {
		return 0, fmt.Errorf("--dtype %s: want bf16, f16 or f32", s)
	}
	return dt, nil
}

// printQuantization sums a quantization up for eyes.
func (s *session) printQuantization(r *mlx.Report, src, out string, took time.Duration) {
	t := newTable(table.Row{"class", "format", "tensors", "parameters", "size", "bits/weight", "relative MSE", "output error", "of rtn"}, 3, 4, 5, 6, 7, 8, 9)
	var fallbacks int64
	for _, c := range r.Classes {
		mse, own, rtn := "", "", ""
		if c.OutputError != nil {
			own, rtn = fmt.Sprintf("%.3e", *c.OutputError), fmt.Sprintf("%.3e", *c.OutputRTN)
			fallbacks += c.Fallbacks
		}
		if c.RelativeMSE != nil {
			mse = fmt.Sprintf("%.3e", *c.RelativeMSE)
		}
		t.AppendRow(table.Row{c.Class, c.Format, c.Tensors, commas(c.Parameters), megabytes(c.Bytes), fmt.Sprintf("%.3f", c.BPW), mse, own, rtn})
	}
	t.AppendRow(table.Row{"all", "", len(r.Modules), commas(r.Parameters), megabytes(r.Bytes), fmt.Sprintf("%.3f", r.BPW), "", "", ""})
	s.printTable(t)
	if fallbacks > 0 {
		fmt.Fprintf(s.stdout, "%s kept as rtn makes them, which was better\n", plural(int(fallbacks), "row"))
	}
	fmt.Fprintf(s.stdout, "\n%s: %s at %.3f bits per weight, everything counted, in %s (%.1f s)\n", out, src, r.BPW, plural(r.Shards, "file"), took.Seconds())
}
