package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/lint"
	"github.com/smelt-go/smelt/parity"
)

// Flags of convert that only drafters have, and that only decoders have.
var (
	ofDrafters = []string{"target", "taps", "reading"}
	ofDecoders = []string{"chunks", "layers", "max-layers", "max-chunk-bytes", "topology", "functions", "kv", "bundle", "embed", "head",
		"residual-scale", "calibration", "calibration-windows", "correction"}
)

// changed lists those of the flags that were given.
func changed(cmd *cobra.Command, names []string) string {
	var given []string
	for _, n := range names {
		if cmd.Flags().Changed(n) {
			given = append(given, "--"+n)
		}
	}
	return strings.Join(given, ", ")
}

// convertDrafterFlags are those of convert that only drafters have.
type convertDrafterFlags struct{ target, taps, reading string }

func (d *convertDrafterFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.target, "target", "", "of a drafter: checkpoint `DIR` of its target, which settles tapped layers and has shared tables")
	f.StringVar(&d.taps, "taps", "", "of an EAGLE-3 drafter: the three `LAYERS` whose outputs it reads, as in 1,13,22 (default: by its rule, from the target)")
	f.StringVar(&d.reading, "reading", "", "of a block drafter whose files contradict each other: what its slots guess, `anchor` or masks")
	_ = cmd.MarkFlagDirname("target")
}

// drafterRequest is what the command line asks of a drafter.
type drafterRequest struct {
	convertDrafterFlags
	src, out         string
	quantize, method string
	plan, asJSON     bool
	bandwidth        float64
}

// convertDrafter is convert for a drafter.
func (s *session) convertDrafter(cmd *cobra.Command, q drafterRequest, c conversion.Options) error {
	d, src, out := q.convertDrafterFlags, q.src, q.out
	if odd := changed(cmd, ofDecoders); odd != "" {
		return usagef("convert: %s is a drafter, for which %s has no meaning", src, odd)
	}
	o := conversion.DrafterOptions{Context: c.Context, Compute: c.Compute, Target: d.target, Reading: d.reading,
		IgnoreKeys: c.IgnoreKeys, Force: c.Force, NoSync: c.NoSync}
	var err error
	if o.Quantize, err = compressionRecipe(src, q.quantize, q.method); err != nil {
		return err
	}
	for part := range strings.SplitSeq(d.taps, ",") {
		if d.taps == "" {
			break
		}
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return usagef("--taps %s: want layers, as in 1,13,22", d.taps)
		}
		o.Taps = append(o.Taps, n)
	}
	if q.plan {
		return s.planDrafter(cmd, q, o)
	}
	start := time.Now()
	bars := s.newBars(cmd.Context())
	o.Progress = bars.update
	rep, err := conversion.ConvertDrafter(cmd.Context(), src, out, o)
	bars.close()
	if err != nil {
		return err
	}
	s.advise(lint.Asked(nil, o.Quantize))
	s.warn(rep.Warnings...)
	if q.asJSON {
		return s.printJSON(rep)
	}
	s.printCompressed(rep.Compressed)
	k := rep.Contract()
	fmt.Fprintf(s.stdout, "%s drafter, %s, context %d, up to %s at a time, %s of weights in %.1f s\n",
		k.Drafter, plural(k.Layers, "layer"), k.Context, plural(k.MaxDraft, "draft"), megabytes(rep.Weights), time.Since(start).Seconds())
	s.printNeeds(k.Target)
	switch {
	case rep.SharedEmbedding:
		fmt.Fprintln(s.stdout, "embeddings: the target's, which the checkpoint repeats")
	case k.Embedding == nil:
		fmt.Fprintln(s.stdout, "embeddings: the target's")
	}
	fmt.Fprintf(s.stdout, "tensors: %d used, %d waived%s\n", rep.Used, len(rep.Waived), waivedReasons(rep.Waived))
	target := ""
	if d.target != "" && k.Embedding == nil {
		target = " --target " + quote(d.target)
	}
	fmt.Fprintf(s.stdout, "\nnext:\n  %s parity %s --checkpoint %s%s\n", s.name, quote(out), quote(src), target)
	return nil
}

// printNeeds says what a drafter reads of its target.
func (s *session) printNeeds(t chunking.DrafterTarget) {
	fmt.Fprintf(s.stdout, "of its target: hidden size %d", t.Hidden)
	if len(t.Taps) > 0 {
		fmt.Fprintf(s.stdout, ", the residual stream after layers %v", t.Taps)
	}
	if t.Norm != "" {
		fmt.Fprintf(s.stdout, ", %s-norm hidden states", t.Norm)
	}
	if len(t.Keys) > 0 {
		fmt.Fprintf(s.stdout, ", keys and values of the last layer of each kind that has its own")
	}
	fmt.Fprintln(s.stdout)
}

// planDrafter is convert --plan for a drafter.
func (s *session) planDrafter(cmd *cobra.Command, q drafterRequest, o conversion.DrafterOptions) error {
	if !(q.bandwidth > 0) {
		return usagef("--bandwidth %g: want a positive number of GB/s", q.bandwidth)
	}
	p, err := conversion.PlanDrafter(cmd.Context(), q.src, o)
	if err != nil {
		return err
	}
	s.advise(lint.Asked(nil, o.Quantize))
	s.warn(p.Warnings...)
	if q.asJSON {
		return s.printJSON(p)
	}
	s.printDrafterPlan(p, q.bandwidth)
	return nil
}

// verifyDrafter is parity for a drafter.
func (s *session) verifyDrafter(cmd *cobra.Command, bundle, target string, o parity.Options, jsonFile string) error {
	bars := s.newBars(cmd.Context())
	rep, err := parity.VerifyDrafter(cmd.Context(), bundle, parity.DrafterOptions{Golden: o.Golden, Checkpoint: o.Checkpoint, Target: target, Modes: o.Modes,
		Progress: func(stage string, done, total int) { bars.update(stage, int64(done), int64(total)) }})
	bars.close()
	if err != nil {
		return err
	}
	return s.verdict(rep, jsonFile)
}
