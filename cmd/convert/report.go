package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/report"
	"github.com/smelt-go/smelt/sensitivity"
)

func (s *session) reportCommand() *cobra.Command {
	var (
		a           allocateFlags
		out, points string
		force       bool
	)
	cmd := &cobra.Command{
		Use:   "report MAP… -o PAGE.html",
		Short: "Show what a sensitivity map says, as one HTML page",
		Long: `Writes a page with everything in it: damage by class and layer, the front of all
sizes, and with --bpw or --bytes the chosen recipe, its certificate and where the
bytes go. Further maps must be of the same checkpoint; their provenance is listed.

--points is a JSON file of measured models to draw beside the front:
[{"name": "uniform 4-bit", "bits_per_weight": 4.5, "damage": 0.435}].`,
		Example: s.examples("report map.json --bpw 4.5 -o report.html"),
		Args:    takes(1, 1<<20),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("report: say where to write: -o PAGE.html")
			}
			if err := fresh(out, force); err != nil {
				return err
			}
			var page report.Page
			for i, f := range args {
				m, err := readMap(f)
				if err != nil {
					return err
				}
				if i == 0 {
					page.Map = m
					continue
				}
				if m.Source.SHA256 != page.Map.Source.SHA256 {
					return fmt.Errorf("%s is of %s, %s of %s: different checkpoints (make a page for each)", args[0], page.Map.Source.Name, f, m.Source.Name)
				}
				page.Others = append(page.Others, m)
			}
			if points != "" {
				data, err := os.ReadFile(points)
				if err != nil {
					return err
				}
				if err := json.Unmarshal(data, &page.Points); err != nil {
					return fmt.Errorf("%s: %w", points, err)
				}
			}
			o, err := a.options(page.Map)
			if err != nil {
				return err
			}
			p, err := page.Map.Problem(o)
			if err != nil {
				return err
			}
			if p.Count == sensitivity.Bytes {
				low, high, err := p.Range()
				if err != nil {
					return err
				}
				if page.Front, err = report.Sweep(p, page.Map.BPW(low)+1e-6, page.Map.BPW(high)+1e-6, 40); err != nil {
					return err
				}
			}
			if a.bpw != 0 || a.size != 0 {
				if err := a.budget(page.Map, p); err != nil {
					return err
				}
				page.Problem = p
				if page.Solution, err = allocate.Solve(p.Problem); err != nil {
					return err
				}
			}
			if err := writeWhole(out, report.HTML(page)); err != nil {
				return err
			}
			fmt.Fprintf(s.stdout, "%s\n", out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "page to write")
	f.StringVar(&points, "points", "", "measured models to draw beside the front: JSON `FILE`")
	f.Float64Var(&a.bpw, "bpw", 0, "show the recipe of this budget: bits per weight, everything counted")
	f.Var(&a.size, "bytes", "show the recipe of this size")
	f.StringSliceVar(&a.keep, "keep", nil, "tensors that stay as they are (`PATTERN`)")
	f.IntSliceVar(&a.bits, "bits", nil, "use only these widths of the map")
	f.IntSliceVar(&a.groups, "group-size", nil, "use only these group sizes of the map")
	f.StringSliceVar(&a.methods, "method", nil, "use only these methods of the map")
	f.BoolVar(&force, "force", false, "replace an existing page")
	a.runtime, a.strategy = "mlx-lm", "exact"
	return cmd
}
