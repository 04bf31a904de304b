package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/mlx"
)

// drafterFlags are those of quantize that only drafters have.
type drafterFlags struct {
	on bool
	statesFlags
}

func (d *drafterFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&d.on, "drafter", false, "DIR is a DSpark drafter: check its tensors, and keep its confidence head, norms and scalars")
	f.StringVar(&d.target, "target", "", "checkpoint `DIR` of a drafter's target: to find tables that are copies of its (--drafter), and to learn from its states (--states)")
	d.define(cmd)
	_ = cmd.MarkFlagDirname("target")
}

// check refuses flags that make no sense together.
func (d *drafterFlags) check(cmd *cobra.Command) error {
	if d.target != "" && !d.on && d.states == "" {
		return usagef("--target is for --drafter and --states")
	}
	if odd := changed(cmd, []string{"gamma", "every", "taps", "reading"}); odd != "" && d.states == "" {
		return usagef("%s: is for --states", odd)
	}
	if d.states != "" && cmd.Flags().Changed("calibration") {
		return usagef("--states and --calibration exclude each other: a drafter learns from states of its target, a model from a text")
	}
	if d.on && cmd.Flags().Changed("requantize") {
		return usagef("--drafter and --requantize exclude each other: a drafter is quantized from its original")
	}
	return nil
}

// quantizeDrafter is quantize for a drafter.
func (s *session) quantizeDrafter(cmd *cobra.Command, d *drafterFlags, src, out string, o mlx.Options, asJSON bool) error {
	bars := s.newBars(cmd.Context())
	o.Progress = bars.update
	start := time.Now()
	rep, err := mlx.QuantizeDrafter(cmd.Context(), src, out, mlx.DrafterOptions{Options: o, Target: d.target})
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
	s.printQuantization(rep.Report, src, out, time.Since(start))
	fmt.Fprintf(s.stdout, "%d tensors, as config.json implies; kept by policy: %s; read back and finite\n", rep.Tensors, plural(len(rep.Kept), "tensor"))
	for _, c := range rep.Copies {
		fmt.Fprintf(s.stdout, "%s is a copy of %s: %s that a host could share instead of reading twice\n", c.Tensor, c.Of, megabytes(c.Bytes))
	}
	if d.target == "" {
		fmt.Fprintln(s.stdout, "give --target DIR to find tables that are copies of the target's")
	}
	return nil
}
