package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/report"
	"github.com/smelt-go/smelt/sensitivity"
)

func (s *session) reportCommand() *cobra.Command {
	var (
		a           allocateFlags
		out, points string
		rules       []string
		force       bool
		asJSON      bool
	)
	cmd := &cobra.Command{
		Use:   "report MAP… -o PAGE.html",
		Short: "Show what a sensitivity map says, as one HTML page",
		Long: `Writes a page with everything in it: damage by class and layer, the front of all
sizes, and with --bpw or --bytes the chosen recipe, its certificate and where the
bytes go. Further maps must be of the same checkpoint; their fronts are drawn beside
the first one's, as are with --rules those of other tools' rules on the first map.

--points is a JSON file of measured models to draw beside the front:
[{"name": "uniform 4-bit", "bits_per_weight": 4.5, "damage": 0.435}].`,
		Example: s.examples(
			"report map.json --bpw 4.5 -o report.html",
			"report best.json rtn.json --bpw 4.5 --rules uniform,threshold --points measured.json -o report.html"),
		Args: takes(1, 1<<20),
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
				line, err := a.otherFront(m, strings.TrimSuffix(filepath.Base(f), ".json"))
				if err != nil {
					return named(f, err)
				}
				page.Lines = append(page.Lines, line)
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
			if page.Front, err = wholeFront(p, 40); err != nil {
				return err
			}
			for _, r := range rules {
				if ruleNames[r] == "" {
					return usagef("--rules %s: want uniform, threshold, static or greedy", r)
				}
				page.Lines = append(page.Lines, report.Line{Name: ruleNames[r], Front: report.Compare(p, r, 24), Steps: true})
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
			if asJSON {
				shown := struct {
					Page   string         `json:"page"`
					Front  []report.Front `json:"front"`
					Chosen *outcome       `json:"chosen,omitempty"`
				}{Page: out, Front: page.Front}
				if page.Solution != nil {
					o := allocation(page.Map, p, page.Solution)
					shown.Chosen = &o
				}
				return s.printJSON(shown)
			}
			fmt.Fprintf(s.stdout, "%s\n", out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "page to write")
	f.StringVar(&points, "points", "", "measured models to draw beside the front: JSON `FILE`")
	f.StringSliceVar(&rules, "rules", nil, "draw what other tools' rules make of the first map: uniform, threshold, static, greedy")
	f.Float64Var(&a.bpw, "bpw", 0, "show the recipe of this budget: bits per weight, everything counted")
	f.Var(&a.size, "bytes", "show the recipe of this size")
	f.StringSliceVar(&a.keep, "keep", nil, "tensors that stay as they are (`PATTERN`)")
	f.IntSliceVar(&a.bits, "bits", nil, "use only these widths of the map")
	f.IntSliceVar(&a.groups, "group-size", nil, "use only these group sizes of the map")
	f.StringSliceVar(&a.methods, "method", nil, "use only these methods of the map")
	f.BoolVar(&force, "force", false, "replace an existing page")
	f.BoolVar(&asJSON, "json", false, "print the front, and what was chosen")
	a.runtime, a.strategy = "mlx-lm", "exact"
	return cmd
}

// ruleNames are the strategies of allocate as a legend names them.
var ruleNames = map[string]string{"uniform": "one format for all", "threshold": "one threshold (mlx-lm)", "static": "a prior by place (mlx-optiq)",
	"greedy": "gain a bit (mlx-optiq)"}

// wholeFront goes from the least size to the largest of use.
func wholeFront(p *sensitivity.Problem, steps int) ([]report.Front, error) {
	low, high, err := p.Range()
	if err != nil {
		return nil, err
	}
	return report.Sweep(p, p.Map.BPW(low)+1e-6, p.Map.BPW(high)+1e-6, steps)
}

// otherFront is that of a further map, with the restrictions of the first one
// as far as it has such tensors.
func (a *allocateFlags) otherFront(m *sensitivity.Map, name string) (report.Line, error) {
	plain := *a
	plain.bits, plain.groups, plain.methods = nil, nil, nil
	o, err := plain.options(m)
	if err != nil {
		return report.Line{}, err
	}
	p, err := m.Problem(o)
	if err != nil {
		return report.Line{}, err
	}
	front, err := wholeFront(p, 30)
	return report.Line{Name: name, Front: front}, err
}
