package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/runtime"
)

func (s *session) parityCommand() *cobra.Command {
	var (
		o              parity.Options
		mode, jsonFile string
		target         string
		gates          []string
		force          bool
		self, list     bool
	)
	cmd := &cobra.Command{
		Use:   "parity BUNDLE (--golden FILE | --checkpoint DIR)",
		Short: "Say whether a bundle computes what its checkpoint means",
		Long: `Reads the bundle back from disk, runs it through decode, prefill and verify,
and compares it with what PyTorch recorded (--golden) or with a plain decoder
that reads the checkpoint directly and shares no code with the converter
(--checkpoint). With both, the recording is the judge and the checkpoint helps
to find the culprit.

A different most likely token counts only where the reference prefers its own
by more than fp16 can blur. A failure is bisected down to chunk, layer and the
first intermediate that differs, and compared with the signatures of known
faults, to say which of them it looks like.

--list-gates says what every gate proves. --self-test breaks good conversions of
built-in models on purpose, one fault at a time, and says which gate noticed.

interop/record_pt.py makes a recording from any transformers model.

Exit code 0: every gate passed; 1: a gate failed; 2: no verdict.`,
		Example: s.examples(
			"parity gemma.bundle --checkpoint ./gemma-3-270m",
			"parity gemma.bundle --golden golden.safetensors --checkpoint ./gemma-3-270m",
			"parity gemma.bundle --checkpoint ./gemma-3-270m --prompts prompts.txt --json report.json",
			"parity gemma.bundle --checkpoint ./gemma-3-270m --gates contract,window,kv",
			"parity --self-test"),
		Args: func(cmd *cobra.Command, args []string) error {
			if self || list {
				return takes(0, 0)(cmd, args)
			}
			return takes(1, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case list:
				return s.printGates(jsonFile)
			case self:
				return s.selfTest(cmd.Context(), jsonFile, force)
			}
			if o.Gates = gates; slices.Contains(gates, "all") {
				if len(gates) > 1 {
					return usagef("parity: --gates all and single gates exclude each other")
				}
				o.Gates = nil
			}
			if o.Golden == "" && o.Checkpoint == "" {
				return usagef("parity: give something to compare with: --golden FILE or --checkpoint DIR")
			}
			if mode != "" {
				m, err := parseMode(mode)
				if err != nil {
					return err
				}
				o.Modes = []runtime.Mode{m}
			}
			if jsonFile != "" && jsonFile != "-" {
				if err := fresh(jsonFile, force); err != nil {
					return err
				}
			}
			if chunking.IsDrafter(args[0]) {
				return s.verifyDrafter(cmd, args[0], target, o, jsonFile)
			}
			bars := s.newBars(cmd.Context())
			o.Progress = func(stage string, done, total int) { bars.update(stage, int64(done), int64(total)) }
			rep, err := parity.Verify(cmd.Context(), args[0], o)
			bars.close()
			if err != nil {
				return err
			}
			return s.verdict(rep, jsonFile)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Golden, "golden", "", "recording of PyTorch's results, a safetensors `FILE`")
	f.StringVar(&o.Checkpoint, "checkpoint", "", "Hugging Face `DIR` that the bundle was made from")
	f.StringVar(&target, "target", "", "of a drafter that takes its target's embeddings: checkpoint `DIR` of the target")
	f.StringVar(&o.Prompts, "prompts", "", "text `FILE` with a prompt a line, for --checkpoint")
	f.StringVar(&mode, "mode", "", "run in this arithmetic only: typed or fp32 (default both)")
	f.StringSliceVar(&gates, "gates", nil, "ask these gates only, by `ID`; all is the default")
	f.StringSliceVar(&gates, "gate", nil, "another spelling of --gates")
	_ = f.MarkHidden("gate")
	f.BoolVar(&list, "list-gates", false, "say what every gate proves, and do nothing")
	f.BoolVar(&self, "self-test", false, "inject every fault of the catalog into conversions of built-in models")
	f.BoolVar(&o.StopAtFailure, "stop", false, "stop at the first gate that fails")
	f.StringVar(&jsonFile, "json", "", "write the report as JSON to `FILE`; - means standard output, instead of the table")
	f.BoolVar(&force, "force", false, "replace an existing file")
	completeDirs(cmd)
	completeFiles(cmd, "golden", "safetensors")
	_ = cmd.MarkFlagDirname("checkpoint")
	_ = cmd.MarkFlagDirname("target")
	var ids []string
	for _, g := range parity.Gates() {
		ids = append(ids, g.ID)
	}
	completeValues(cmd, map[string][]string{"mode": {"typed", "fp32"}, "gates": append(ids, "all")})
	return cmd
}

// verdict prints the report; one that did not pass is errGate.
func (s *session) verdict(rep *parity.Report, jsonFile string) error {
	if err := s.printVerdict(rep, jsonFile); err != nil {
		return err
	}
	if !rep.Pass {
		return errGate
	}
	return nil
}

// printVerdict prints the report and writes its JSON form if asked to.
func (s *session) printVerdict(rep *parity.Report, jsonFile string) error {
	if jsonFile == "-" {
		return s.printJSON(rep)
	}
	if err := rep.WriteText(s.stdout); err != nil || jsonFile == "" {
		return err
	}
	data, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return fmt.Errorf("parity: report: %w", err)
	}
	return writeWhole(jsonFile, append(data, '\n'))
}
