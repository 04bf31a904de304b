package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/fidelity"
)

const divergencesSchema = "smelt.divergences/1"

// divergences is what eval --save writes.
type divergences struct {
	Schema string            `json:"schema"`
	Model  string            `json:"model"`
	Texts  []textDivergences `json:"texts"`
}

type textDivergences struct {
	Text   string    `json:"text"`
	SHA256 string    `json:"sha256"` // of the file
	Window int       `json:"window_tokens"`
	KL     []float64 `json:"kl"` // by position
}

func savedDivergences(model string, reps []evaluated) []byte {
	d := divergences{Schema: divergencesSchema, Model: model}
	for _, r := range reps {
		d.Texts = append(d.Texts, textDivergences{r.Text, r.hash, r.Window, r.Against.Positions})
	}
	data, err := json.Marshal(d)
	if err != nil {
		return nil // numbers are finite
	}
	return append(data, '\n')
}

func readDivergences(file string) (*divergences, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var d divergences
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil || d.Schema != divergencesSchema {
		return nil, fmt.Errorf("%s: is not what eval --save writes", file)
	}
	return &d, nil
}

func (s *session) evalCompareCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compare A.json B.json",
		Short: "Which of two models is nearer to the reference, with an interval",
		Long: `Pairs what eval --save wrote for two models, text by text and position by position,
and prints the difference of their mean divergences with its 95 % interval. An
interval that holds 0 says that the text does not tell which is better.`,
		Args: takes(2, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := readDivergences(args[0])
			if err != nil {
				return err
			}
			b, err := readDivergences(args[1])
			if err != nil {
				return err
			}
			if len(a.Texts) != len(b.Texts) {
				return fmt.Errorf("%s has %d texts, %s has %d", args[0], len(a.Texts), args[1], len(b.Texts))
			}
			type compared struct {
				Text string `json:"text"`
				*fidelity.Paired
			}
			var all []compared
			for i, x := range a.Texts {
				y := b.Texts[i]
				if x.SHA256 != y.SHA256 || x.Window != y.Window {
					return fmt.Errorf("%s was evaluated on %s, %s on %s: another text, or other windows", args[0], x.Text, args[1], y.Text)
				}
				p, err := fidelity.Pair(x.KL, y.KL)
				if err != nil {
					return fmt.Errorf("%s: %w", x.Text, err)
				}
				all = append(all, compared{x.Text, p})
			}
			if asJSON {
				return s.printJSON(all)
			}
			t := newTable(table.Row{"text", "positions", a.Model, b.Model, "difference", "95 % interval"}, 2, 3, 4, 5, 6)
			for _, p := range all {
				t.AppendRow(table.Row{p.Text, p.Positions, fmt.Sprintf("%.5f", p.A), fmt.Sprintf("%.5f", p.B),
					fmt.Sprintf("%+.5f", p.Difference), fmt.Sprintf("%+.5f to %+.5f", p.Low, p.High)})
			}
			s.printTable(t)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
