package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/sensitivity"
)

func (s *session) verifyCommand() *cobra.Command {
	var (
		text   textFlags
		cal    calibrationFlags
		recipe string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "verify DIR MAP --recipe RECIPE",
		Short: "Compare a recipe's damage with what its map predicts",
		Long: `Stores all tensors of DIR by a recipe at once, measures the divergence over the
whole vocabulary, and compares it with the sum of single damages in MAP. Give the
flags that MAP was measured with, or other text to see how the prediction carries
over.`,
		Args: takes(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if recipe == "" {
				return usagef("verify: give the recipe: --recipe FILE")
			}
			r, err := readRecipe(recipe)
			if err != nil {
				return err
			}
			mp, err := readMap(args[1])
			if err != nil {
				return err
			}
			m, err := sensitivity.Open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer m.Close()
			if err := m.Belongs(mp); err != nil {
				return err
			}
			predicted, err := mp.Predict(r)
			if err != nil {
				return err
			}
			seq, _, err := s.sequences(&text, args[0])
			if err != nil {
				return err
			}
			coding, err := cal.coding(args[0])
			if err != nil {
				return err
			}
			joint, se, err := sensitivity.Joint(cmd.Context(), m, r, coding, seq)
			if err != nil {
				return err
			}
			if asJSON {
				return s.printJSON(map[string]float64{"joint": joint, "standard_error": se, "predicted": predicted})
			}
			fmt.Fprintf(s.stdout, "measured %.5f ± %.5f, predicted %.5f (%+.1f %%)\n", joint, se, predicted, 100*(predicted/joint-1))
			return nil
		},
	}
	cmd.Flags().StringVar(&recipe, "recipe", "", "recipe `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	text.define(cmd)
	cal.define(cmd)
	return cmd
}
