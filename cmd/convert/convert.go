package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/lint"
	"github.com/smelt-go/smelt/mlx"
)

func (s *session) convertCommand() *cobra.Command {
	var (
		o                          conversion.Options
		draft                      convertDrafterFlags
		out, functions, head, prec string
		quantize, method           string
		cal                        calibrationFlags
		topology                   string
		limit                      byteSize
		asJSON, plan               bool
		bandwidth                  float64
	)
	cmd := &cobra.Command{
		Use:   "convert DIR -o OUT",
		Short: "Convert a Hugging Face directory into a Core ML bundle",
		Long: `Converts the model in DIR into the bundle OUT: one or more .mlpackage chunks,
a contract that says what every chunk takes and returns, the embedding table,
tokenizer and configuration.

OUT appears whole or not at all, and an existing one is kept unless --force is
given. The same model and flags give the same bytes on every machine.

Functions share the weights of their package:
  decode      one token
  prefill:N   N tokens at any offset
  verify:K    K draft tokens; returns their keys and values, commits nothing

The residual stream of some models leaves the range of fp16. convert probes it
and, where needed, scales it by a power of two, which changes no result.

A speculative drafter (Gemma 4 assistant, EAGLE-3, MTP modules, DSpark) becomes
one package and a drafter.json that says what it reads of its target. --quantize
and --plan are for drafters as well; a confidence head is never compressed.

What is asked for and has been tried and given up elsewhere is a warning on
standard error, with what was measured and where that stands.`,
		Example: s.examples(
			"convert ./gemma-3-270m -o gemma.bundle",
			"convert ./Llama-3.2-1B -o llama.bundle --chunks 4 --context 4096",
			"convert ./Qwen3-0.6B -o qwen.bundle --layers 0-8,8-20,20-28 --kv state",
			"convert ./gemma-4-E2B --topology coreml-llm-3 --plan --bandwidth 60",
			"convert ./gemma-4-E2B-assistant -o assistant.bundle --target ./gemma-4-E2B --quantize coreml-int4-b32",
			"convert ./SmolLM2-135M -o smol.bundle --functions decode,prefill:128 --head token --json"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" && !plan {
				return usagef("convert: say where to write: -o OUT")
			}
			var err error
			if o.Functions, err = optional(functions, chunking.ParseFunctions); err != nil {
				return usageError{err}
			}
			if o.Head, err = optional(head, chunking.ParseHead); err != nil {
				return usageError{err}
			}
			if o.Topology, err = optional(topology, chunking.ParseTopology); err != nil {
				return usageError{err}
			}
			compute, ok := map[string]string{"f16": "fp16", "fp16": "fp16", "f32": "fp32", "fp32": "fp32"}[prec]
			if !ok {
				return usagef("--compute %s: want f16 or f32", prec)
			}
			for flag, n := range map[string]int{"context": o.Context, "chunks": o.Chunks, "max-layers": o.MaxLayers} {
				if cmd.Flags().Changed(flag) && n < 1 {
					return usagef("--%s %d: want at least 1", flag, n)
				}
			}
			o.Compute, o.MaxChunkBytes = compute, int64(limit)
			if conversion.IsDrafter(args[0]) {
				return s.convertDrafter(cmd, drafterRequest{draft, args[0], out, quantize, method, plan, asJSON, bandwidth}, o)
			}
			if odd := changed(cmd, ofDrafters); odd != "" {
				return usagef("convert: %s is for drafters, and %s is none", odd, args[0])
			}
			if o.Quantize, err = compressionRecipe(args[0], quantize, method); err != nil {
				return err
			}
			if o.Calibration, err = convertCalibration(&cal, args[0], o.Quantize, plan); err != nil {
				return err
			}
			bars := s.newBars(cmd.Context())
			o.Progress = bars.update
			if plan {
				if bandwidth <= 0 {
					return usagef("--bandwidth %g: want a positive number of GB/s", bandwidth)
				}
				p, err := conversion.Plan(cmd.Context(), args[0], o, bandwidth)
				bars.close()
				if err != nil {
					return err
				}
				ledger := lint.Asked(planned(p), o.Quantize)
				s.advise(ledger)
				if asJSON {
					return s.printAdvised(p, ledger)
				}
				s.printPlan(p)
				return nil
			}
			if o.Quantize == nil && os.Getenv("GOGC") == "" {
				// Weights stream past the heap, which stays below 100 MB.
				defer debug.SetGCPercent(debug.SetGCPercent(400))
			}
			start := time.Now()
			rep, err := conversion.Convert(cmd.Context(), args[0], out, o)
			bars.close()
			if err != nil {
				return err
			}
			ledger := lint.Asked(rep.Contract(), o.Quantize)
			s.advise(ledger)
			if asJSON {
				return s.printAdvised(rep, ledger)
			}
			s.printConversion(rep, args[0], out, time.Since(start))
			return nil
		},
	}
	f := cmd.Flags()
	draft.register(cmd)
	f.StringVarP(&out, "output", "o", "", "directory to write the bundle to")
	f.IntVar(&o.Context, "context", 0, fmt.Sprintf("positions to make room for (default: the model's, at most %d)", conversion.DefaultContext))
	f.IntVar(&o.Chunks, "chunks", 0, "cut into `N` chunks of like size")
	f.StringVar(&o.Layers, "layers", "", "cut at these layers, as in `0-8,8-25,25-35`")
	f.StringVar(&topology, "topology", "", "cut by a `RULE`: auto, 1, 2, coreml-llm-3, coreml-llm-4")
	f.IntVar(&o.MaxLayers, "max-layers", 0, "cut into as few chunks as have at most `N` layers each")
	f.Var(&limit, "max-chunk-bytes", "cut into as few chunks as fit `SIZE` each (default 950MB)")
	f.StringVar(&functions, "functions", "", "functions of every chunk (default decode,prefill:64,verify:4)")
	f.StringVar(&o.KV, "kv", "", "key-value cache: `tensor` in and out (default), Core ML state, or the form of coreml-llm")
	f.StringVar(&o.Bundle, "bundle", "", "add the files of an app: `coreml-llm`")
	f.StringVar(&o.Embed, "embed", "", "embedding rows: looked up by the host from a `sidecar` (default), from rows of int8 (default with --bundle) or from the head, or in the graph")
	f.StringVar(&head, "head", "", "outputs of the last chunk: token, logits, hidden, normed, topk:K (default token,logits; for coreml-llm also normed)")
	f.StringVar(&quantize, "quantize", "", "compress weights by a `RECIPE`: a JSON file, or "+strings.Join(coremlPresets(), ", "))
	f.StringVar(&method, "method", "", "how codes are found: rtn (the numbers of coremltools), refit (less error), and with a calibration feedback or best")
	f.StringVar(&cal.file, "calibration", "", "text `FILE` to calibrate on: plain text, or JSON lines of domain and text")
	f.IntVar(&cal.windows, "calibration-windows", calibration.DefaultWindows, "how many windows of 512 tokens to calibrate on")
	f.Float64Var(&cal.correction, "correction", mlx.DefaultCorrection, "part of the drift of its inputs that a layer makes up for, with --method best: 0 to 1")
	f.StringVar(&prec, "compute", "f16", "precision: f16 or f32")
	f.Float64Var(&o.ResidualScale, "residual-scale", 0, "scale of the residual stream, a power of two (default: probe)")
	f.StringSliceVar(&o.IgnoreKeys, "ignore-config-key", nil, "accept this unknown `KEY` of config.json unread (repeatable)")
	f.BoolVar(&o.Force, "force", false, "replace an existing bundle")
	f.BoolVar(&o.NoSync, "no-sync", false, "do not wait until the bundle is on the disk")
	f.BoolVar(&plan, "plan", false, "write nothing: print the cut, sizes, inputs and outputs, and what a token reads")
	f.Float64Var(&bandwidth, "bandwidth", conversion.DefaultBandwidth, "memory bandwidth for --plan in `GB/s`")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	completeDirs(cmd)
	completeValues(cmd, map[string][]string{"bundle": {conversion.BundleCoreMLLLM}, "topology": {"auto", "1", "2", "coreml-llm-3", "coreml-llm-4"}, "kv": {chunking.KVTensor, chunking.KVState, chunking.KVCoreMLLLM},
		"embed": {chunking.EmbedSidecar, chunking.EmbedInt8, chunking.EmbedHead, chunking.EmbedGraph}, "compute": {"f16", "f32"},
		"head": {"token", "logits", "token,logits", "token,hidden"}})
	return cmd
}

// optional parses v unless it is empty.
func optional[T any](v string, parse func(string) (T, error)) (T, error) {
	if v == "" {
		var zero T
		return zero, nil
	}
	return parse(v)
}

// printConversion sums a conversion up for eyes.
func (s *session) printConversion(rep *conversion.Report, src, out string, took time.Duration) {
	s.printCompressed(rep.Compressed)
	c := rep.Contract()
	t := newTable(table.Row{"chunk", "layers", "functions", "ops", "weights", "model"}, 4, 5, 6)
	var total int64
	for _, ch := range rep.Chunks {
		t.AppendRow(table.Row{ch.Name, fmt.Sprintf("%d-%d", ch.Layers[0], ch.Layers[1]),
			strings.Join(ch.Functions, " "), ch.Ops, megabytes(ch.Weights), megabytes(ch.Model)})
		total += ch.Weights + ch.Model
	}
	s.printTable(t)
	fmt.Fprintf(s.stdout, "\n%s, %s, context %d, %s cache, %s of packages in %.1f s\n",
		rep.Architecture, plural(c.Model.Layers, "layer"), c.Context, c.KV, megabytes(total), took.Seconds())
	fmt.Fprintf(s.stdout, "tensors: %d used, %d waived%s\n", rep.Used, len(rep.Waived), waivedReasons(rep.Waived))
	if len(rep.Defaulted) > 0 {
		fmt.Fprintf(s.stdout, "config.json leaves out %s: the architecture's defaults apply\n", strings.Join(rep.Defaulted, ", "))
	}
	if len(rep.Ignored) > 0 {
		fmt.Fprintf(s.stdout, "config.json keys accepted unread, as asked for: %s\n", strings.Join(rep.Ignored, ", "))
	}
	fmt.Fprintf(s.stdout, "residual scale: %s\n", residualReason(rep))
	fmt.Fprintf(s.stdout, "\nnext:\n  %[1]s run %[2]s --prompt \"...\"\n  %[1]s parity %[2]s --checkpoint %[3]s\n  %[1]s lint %[2]s\n", s.name, quote(out), quote(src))
}

// residualReason says which scale was taken and why.
func residualReason(rep *conversion.Report) string {
	p, scale := rep.Probe, rep.ResidualScale
	switch {
	case p == nil && scale == 1:
		return "1 (nothing to fear in fp32)"
	case p == nil:
		return fmt.Sprintf("%s (as asked for)", fraction(scale))
	case scale == 1:
		return fmt.Sprintf("1 (the probe of %d tokens saw at most %.5g, far from fp16's 65504)", p.Tokens, p.Residual)
	}
	return fmt.Sprintf("%s (the probe of %d tokens saw %.5g; with %d× headroom that leaves fp16's 65504)",
		fraction(scale), p.Tokens, p.Residual, conversion.ProbeHeadroom)
}

// fraction prints a power of two as 1/16.
func fraction(v float64) string {
	if v > 0 && v < 1 {
		return fmt.Sprintf("1/%g", 1/v)
	}
	return fmt.Sprintf("%g", v)
}

// waivedReasons groups waived tensors by reason.
func waivedReasons(w []conversion.WaivedTensor) string {
	count := map[string]int{}
	var order []string
	for _, x := range w {
		if count[x.Reason] == 0 {
			order = append(order, x.Reason)
		}
		count[x.Reason]++
	}
	if len(order) == 0 {
		return ""
	}
	for i, r := range order {
		order[i] = fmt.Sprintf("%d %s", count[r], r)
	}
	return " (" + strings.Join(order, "; ") + ")"
}

// quote makes a path safe to paste into a shell.
func quote(path string) string {
	if path != "" && !strings.ContainsAny(path, " \t\n'\"\\$&;|<>()*?[]#~`!{}") {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
