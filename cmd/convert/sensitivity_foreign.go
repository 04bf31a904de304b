package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/sensitivity"
)

func (s *session) importCommand() *cobra.Command {
	var (
		o         sensitivity.ImportOptions
		dir, out  string
		sign      string
		force     bool
		low, high int
	)
	cmd := &cobra.Command{
		Use:   "import FILE --of DIR -o MAP",
		Short: "Make a map of another tool's file",
		Long: `Reads mlx-optiq's sensitivity.json (or its checkpoint) or mlx-lm's
…_sensitivities.json, for the checkpoint in DIR. mlx-optiq's figures are damage or
gain, depending on how it ran, and its files do not say which: where they neither
fall nor rise with bits throughout, --sign has to. An optiq_metadata.json, which
holds a result and no sensitivities, becomes a recipe.`,
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("import: say where to write: -o MAP")
			}
			if sign != "" && sign != "damage" && sign != "gain" {
				return usagef("--sign %s: want damage or gain", sign)
			}
			if err := fresh(out, force); err != nil {
				return err
			}
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			var probe struct {
				PerLayer json.RawMessage `json:"per_layer"`
			}
			if json.Unmarshal(data, &probe) == nil && probe.PerLayer != nil {
				r, err := sensitivity.ImportMetadata(data)
				if err != nil {
					return named(args[0], err)
				}
				fmt.Fprintf(s.stdout, "%s: the recipe that %s holds\n", out, args[0])
				return writeWhole(out, r.Marshal())
			}
			if dir == "" {
				return usagef("import: give the checkpoint that the file is of: --of DIR")
			}
			m, err := sensitivity.Open(cmd.Context(), dir)
			if err != nil {
				return err
			}
			defer m.Close()
			o.Sign, o.Low, o.High = sensitivity.Sign(sign), low, high
			o.Warn = func(t string) { s.warn(t) }
			mp, err := sensitivity.Import(m, data, o)
			if err != nil {
				return fmt.Errorf("%s: %w (flags: --sign, --keep-missing)", args[0], err)
			}
			if err := writeWhole(out, mp.Marshal()); err != nil {
				return err
			}
			fmt.Fprintf(s.stdout, "%s: %s\n", out, plural(len(mp.Tensors), "tensor"))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "map to write")
	f.StringVar(&dir, "of", "", "the checkpoint `DIR`")
	f.StringVar(&sign, "sign", "", "what the figures are: damage, or gain over the narrowest format")
	f.IntVar(&o.Group, "group-size", 0, "group size of the formats (default: what the file says, or 64)")
	f.IntVar(&low, "low-bits", 0, "mlx-lm's low width (default 4)")
	f.IntVar(&high, "high-bits", 0, "mlx-lm's high width (default 5)")
	f.BoolVar(&o.KeepMissing, "keep-missing", false, "leave tensors that the file lacks as they are")
	f.BoolVar(&force, "force", false, "replace an existing map")
	return cmd
}

func (s *session) exportCommand() *cobra.Command {
	var (
		to, out, method  string
		group, low, high int
		force            bool
	)
	cmd := &cobra.Command{
		Use:   "export MAP --to optiq|mlx-lm -o FILE",
		Short: "Write a map as another tool's file",
		Args:  takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("export: say where to write: -o FILE")
			}
			if err := fresh(out, force); err != nil {
				return err
			}
			m, err := readMap(args[0])
			if err != nil {
				return err
			}
			var data []byte
			switch to {
			case "optiq":
				data, err = m.ExportOptiQ(group, quant.Method(method))
			case "mlx-lm":
				data, err = m.ExportMLX(low, high, group, quant.Method(method))
			default:
				return usagef("--to %s: want optiq or mlx-lm", to)
			}
			if err != nil {
				return err
			}
			return writeWhole(out, data)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "file to write")
	f.StringVar(&to, "to", "optiq", "optiq (damages by width), or mlx-lm (gains of one width over another)")
	f.IntVar(&group, "group-size", 64, "group size of the candidates to write")
	f.StringVar(&method, "method", "rtn", "method of the candidates to write")
	f.IntVar(&low, "low-bits", 4, "mlx-lm's low width")
	f.IntVar(&high, "high-bits", 5, "mlx-lm's high width")
	f.BoolVar(&force, "force", false, "replace an existing file")
	return cmd
}
