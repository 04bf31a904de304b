package main

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/inspect"
	"github.com/smelt-go/smelt/lint"
)

func (s *session) lintCommand() *cobra.Command {
	var asJSON, strict, rules bool
	cmd := &cobra.Command{
		Use:   "lint BUNDLE|PACKAGE",
		Short: "Look for what is known to fail on the Neural Engine",
		Long: `Checks a bundle, or an .mlpackage of any tool, against documented limits of
Core ML and reports of what failed on the Neural Engine. Every finding names
its source. Nothing is measured: a clean report does not promise that a model
runs there.

Exit code 0: no errors (with --strict: no warnings either); 1: there are;
2: the files cannot be read.`,
		Example: s.examples(
			"lint gemma.bundle",
			"lint model.mlpackage --strict",
			"lint gemma.bundle --json",
			"lint --rules"),
		Args: func(cmd *cobra.Command, args []string) error {
			if rules {
				return takes(0, 0)(cmd, args)
			}
			return takes(1, 1)(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if rules {
				return s.printRules(asJSON)
			}
			kind, err := inspect.Detect(args[0])
			if err != nil {
				return err
			}
			check := lint.Package
			switch kind {
			case inspect.KindBundle:
				check = lint.Bundle
			case inspect.KindCheckpoint:
				return usagef("lint: %s is a checkpoint (convert it first)", args[0])
			}
			r, err := check(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				err = s.printJSON(r)
			} else {
				err = r.WriteText(s.stdout)
			}
			if err != nil {
				return err
			}
			if !r.OK() || strict && r.Count(lint.Warning) > 0 {
				return errGate
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&strict, "strict", false, "fail on warnings, too")
	f.BoolVar(&rules, "rules", false, "list the rules and their sources")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	completeDirs(cmd)
	return cmd
}

// ruleText is a rule as data.
type ruleText struct {
	ID        string        `json:"id"`
	Severity  lint.Severity `json:"severity"`
	Statement string        `json:"statement"`
	Source    string        `json:"source"`
}

func (s *session) printRules(asJSON bool) error {
	var list []ruleText
	for _, r := range lint.Rules() {
		list = append(list, ruleText{r.ID, r.Severity, r.Statement, r.Source})
	}
	if asJSON {
		return s.printJSON(list)
	}
	t := newTable(table.Row{"rule", "severity", "statement", "source"})
	for _, r := range list {
		t.AppendRow(table.Row{r.ID, r.Severity, r.Statement, r.Source})
	}
	s.printTable(t)
	return nil
}
