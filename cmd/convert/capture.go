package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/capture"
	"github.com/smelt-go/smelt/sensitivity"
)

func (s *session) captureCommand() *cobra.Command {
	var (
		text     textFlags
		o        capture.Options
		out, dt  string
		drafter  string
		headTaps []int
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "capture DIR --text FILE -o OUT",
		Short: "Write hidden states over a text, for drafters",
		Long: `Runs the model over a text and writes what it computes inside as shards of
safetensors: the residual stream after the layers that --taps names (-1 is the
embedding), the final hidden state before (pre) or after (post) the final norm, and
keys and values of the last layer of a kind that has its own. --drafter asks for what
a drafter reads, and for what says which tokens its target predicts.
The format is described in package capture. A run that was stopped goes on when
started again with the same flags.`,
		Example: s.examples(
			"capture ./gemma-3-270m --text calibration.jsonl --taps 2,8,14 --norm post -o hiddens",
			"capture ./gemma-3-270m --text calibration.jsonl --drafter ./drafter -o states"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("capture: say where to write: -o OUT")
			}
			var err error
			if o.DType, err = parseFloatType(dt); err != nil {
				return usageError{err}
			}
			m, err := sensitivity.Open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer m.Close()
			if drafter != "" {
				if odd := changed(cmd, []string{"taps", "norm", "keys"}); odd != "" {
					return usagef("capture: --drafter says what is captured: it takes no %s", odd)
				}
				if err := needsOf(drafter, m, headTaps, &o); err != nil {
					return err
				}
			}
			seq, _, err := s.sequences(&text, args[0])
			if err != nil {
				return err
			}
			o.Source = m.Source.SHA256
			bars := s.newBars(cmd.Context())
			o.Progress = bars.update
			x, err := capture.Run(cmd.Context(), m.Decoder, seq, out, o)
			bars.close()
			if err != nil {
				return err
			}
			if asJSON {
				return s.printJSON(x)
			}
			fmt.Fprintf(s.stdout, "%s: %s of %d tokens in %s\n", out, plural(x.Sequences, "sequence"), x.Tokens, plural(len(x.Shards), "shard"))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "directory to write")
	f.IntSliceVar(&o.Taps, "taps", nil, "layers after which the residual stream is taken")
	f.StringSliceVar(&o.Norms, "norm", nil, "final hidden state: pre, post")
	f.StringSliceVar(&o.Keys, "keys", nil, "keys and values of the last layer of a kind: full, sliding")
	f.StringVar(&drafter, "drafter", "", "capture what the drafter in `DIR` reads")
	f.IntSliceVar(&headTaps, "drafter-taps", nil, "layers that an EAGLE-3 drafter taps (default: by its rule)")
	_ = cmd.MarkFlagDirname("drafter")
	f.StringVar(&dt, "dtype", "bf16", "type of values: bf16, f16 or f32")
	f.IntVar(&o.Sequences, "shard-sequences", 64, "sequences of a shard")
	f.BoolVar(&asJSON, "json", false, "print the index")
	text.define(cmd)
	completeDirs(cmd)
	completeValues(cmd, map[string][]string{"norm": {"pre", "post"}, "keys": {"full", "sliding"}, "dtype": {"bf16", "f16", "f32"}})
	return cmd
}
