package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/rotation"
)

func (s *session) rotateCommand() *cobra.Command {
	var (
		o       rotation.Options
		out, dt string
	)
	cmd := &cobra.Command{
		Use:   "rotate DIR -o OUT",
		Short: "Fold rotations into a model, which quantizes better where weights have outliers",
		Long: `Writes a Hugging Face directory that computes what DIR does, with weights turned
by Hadamard matrices and random signs: the residual stream, and the values of
every head. Gains of norms are folded into projections, and a tied head becomes a
tensor of its own. Whatever reads DIR reads OUT.

Models with norms between a projection and the residual stream, Gemma's, cannot
be rotated.`,
		Example: s.examples(
			"rotate ./SmolLM2-135M -o smol-rotated",
			"quantize smol-rotated -o smol-rotated-4bit --bits 4"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("rotate: say where to write: -o OUT")
			}
			var err error
			if o.DType, err = optional(dt, parseFloatType); err != nil {
				return usageError{err}
			}
			if err := rotation.Rotate(cmd.Context(), args[0], out, o); err != nil {
				return err
			}
			name := o.DType
			if name == 0 {
				name = checkpoint.F32
			}
			fmt.Fprintf(s.stdout, "%s: %s rotated, %v weights\n", out, args[0], name)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "directory to write the model to")
	f.Uint64Var(&o.Seed, "seed", 42, "signs of the rotations")
	f.StringVar(&dt, "dtype", "", "type of the weights: bf16, f16 or f32 (default f32, which loses nothing)")
	f.BoolVar(&o.Force, "force", false, "replace an existing directory")
	completeDirs(cmd)
	completeValues(cmd, map[string][]string{"dtype": {"bf16", "f16", "f32"}})
	return cmd
}
