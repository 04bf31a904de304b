package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/parity"
)

func (s *session) logitsCommand() *cobra.Command {
	var (
		idFile, via, mode, out string
		force                  bool
	)
	cmd := &cobra.Command{
		Use:   "logits BUNDLE --ids FILE -o OUT",
		Short: "Write what a bundle says after each token of a list",
		Long: `Feeds token ids to a bundle through one kind of function and writes a
safetensors file: logits f32 [T, vocabulary], or argmax i32 [T] where the
bundle yields only tokens, and input_ids.

FILE is a safetensors file with a tensor input_ids, or text: ids separated by
blanks, commas or line ends.`,
		Example: s.examples(
			"logits gemma.bundle --ids golden.safetensors -o logits.safetensors",
			"logits gemma.bundle --ids ids.txt --via prefill --mode fp32 -o logits.safetensors"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case idFile == "":
				return usagef("logits: give token ids: --ids FILE")
			case out == "":
				return usagef("logits: say where to write: -o OUT")
			}
			m, err := parseMode(mode)
			if err != nil {
				return err
			}
			kind := parity.Via(via)
			switch kind {
			case parity.ViaDecode, parity.ViaPrefill, parity.ViaVerify:
			default:
				return usagef("--via %s: want decode, prefill or verify", via)
			}
			if err := fresh(out, force); err != nil {
				return err
			}
			ids, err := readIDs(idFile)
			if err != nil {
				return err
			}
			if err := parity.Logits(cmd.Context(), args[0], ids, kind, m, out); err != nil {
				return err
			}
			fmt.Fprintf(s.stderr, "%s: %d tokens through %s, %s arithmetic\n", out, len(ids), via, m)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&idFile, "ids", "", "token ids: safetensors or text `FILE`")
	f.StringVar(&via, "via", "decode", "functions to feed the tokens through: decode, prefill or verify")
	f.StringVar(&mode, "mode", "typed", "arithmetic: typed or fp32")
	f.StringVarP(&out, "output", "o", "", "safetensors file to write")
	f.BoolVar(&force, "force", false, "replace an existing file")
	completeDirs(cmd)
	completeValues(cmd, map[string][]string{"via": {"decode", "prefill", "verify"}, "mode": {"typed", "fp32"}})
	return cmd
}

// readIDs reads token ids from a safetensors file with input_ids, or from
// text.
func readIDs(path string) ([]int32, error) {
	if !strings.HasSuffix(path, ".safetensors") {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("--ids: %w", err)
		}
		ids, err := parseIDs(string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return ids, nil
	}
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, ok := f.Tensor("input_ids")
	if !ok {
		return nil, fmt.Errorf("%s: there is no tensor input_ids (is it a recording?)", path)
	}
	v, err := checkpoint.ReadInts(t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	ids := make([]int32, len(v))
	for i, x := range v {
		if ids[i] = int32(x); int64(ids[i]) != x || x < 0 {
			return nil, fmt.Errorf("%s: input_ids[%d] is %d, not a token id", path, i, x)
		}
	}
	return ids, nil
}
