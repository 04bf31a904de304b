package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/sensitivity"
)

func (s *session) mergeCommand() *cobra.Command {
	return s.fromMaps(&cobra.Command{
		Use:   "merge PART… -o MAP",
		Short: "Join the parts of a map that shards measured",
		Long:  `Writes the map that a single run would have written, byte for byte.`,
		Args:  takes(1, 1<<20),
	}, sensitivity.Merge)
}

func (s *session) combineCommand() *cobra.Command {
	return s.fromMaps(&cobra.Command{
		Use:   "combine AROUND SINGLES -o MAP",
		Short: "Take classes from a map around a recipe, tensors from one without",
		Long: `Around a recipe (--base), a tensor's own figure is uncertain, but classes as a whole
are right for the model as it will be stored. Measured singly, tensors are exact
among each other. MAP divides what AROUND says of a class as SINGLES says of its
tensors.`,
		Args: takes(2, 2),
	}, func(m ...*sensitivity.Map) (*sensitivity.Map, error) { return sensitivity.Divide(m[0], m[1]) })
}

// fromMaps completes a command that writes the map which join makes of those that
// its arguments name.
func (s *session) fromMaps(cmd *cobra.Command, join func(...*sensitivity.Map) (*sensitivity.Map, error)) *cobra.Command {
	var (
		out   string
		force bool
	)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" {
			return usagef("%s: say where to write: -o MAP", cmd.Name())
		}
		if err := fresh(out, force); err != nil {
			return err
		}
		var maps []*sensitivity.Map
		for _, a := range args {
			m, err := readMap(a)
			if err != nil {
				return err
			}
			maps = append(maps, m)
		}
		m, err := join(maps...)
		if err != nil {
			return err
		}
		if err := writeWhole(out, m.Marshal()); err != nil {
			return err
		}
		fmt.Fprintf(s.stdout, "%s: %s\n", out, plural(len(m.Tensors), "tensor"))
		return nil
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write the map to")
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing map")
	return cmd
}
