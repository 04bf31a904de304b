package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/sensitivity"
)

func (s *session) combineCommand() *cobra.Command {
	var (
		out   string
		force bool
	)
	cmd := &cobra.Command{
		Use:   "combine AROUND SINGLES -o MAP",
		Short: "Take classes from a map around a recipe, tensors from one without",
		Long: `Around a recipe (--base), a tensor's own figure is uncertain, but classes as a whole
are right for the model as it will be stored. Measured singly, tensors are exact
among each other. MAP divides what AROUND says of a class as SINGLES says of its
tensors.`,
		Args: takes(2, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usagef("combine: say where to write: -o MAP")
			}
			if err := fresh(out, force); err != nil {
				return err
			}
			around, err := readMap(args[0])
			if err != nil {
				return err
			}
			singles, err := readMap(args[1])
			if err != nil {
				return err
			}
			m, err := sensitivity.Divide(around, singles)
			if err != nil {
				return err
			}
			if err := writeWhole(out, m.Marshal()); err != nil {
				return err
			}
			fmt.Fprintf(s.stdout, "%s: %s\n", out, plural(len(m.Tensors), "tensor"))
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write the map to")
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing map")
	return cmd
}
