package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/runtime"
	"github.com/smelt-go/smelt/tokenizer"
)

// generation is what run reports.
type generation struct {
	Text         string   `json:"text,omitempty"`
	PromptIDs    []int32  `json:"prompt_ids"`
	IDs          []int32  `json:"ids"`
	Stop         string   `json:"stop"` // "length", "eos" or "context"
	Mode         string   `json:"mode"`
	LoadSeconds  float64  `json:"load_seconds"`
	FirstSeconds float64  `json:"time_to_first_token_seconds"`
	Rate         float64  `json:"tokens_per_second"` // after the first token
	Profile      *profile `json:"profile,omitempty"`
}

func (s *session) runCommand() *cobra.Command {
	var (
		o                    engine.GenerateOptions
		prompt, idList, mode string
		asJSON, profiled     bool
	)
	cmd := &cobra.Command{
		Use:   "run BUNDLE --prompt TEXT",
		Short: "Generate text with a bundle",
		Long: `Runs a bundle from disk: feeds the prompt through prefill, then decodes.
The text goes to standard output as it comes, timings to standard error.

Without --temperature the most likely token is taken each time. --mode typed
rounds as the declared types do (fp16); fp32 does not round.

--profile shows where the time goes: for every function, time, bytes and share
by kind of op and by layer, and how near each is to the speed of memory.`,
		Example: s.examples(
			`run gemma.bundle --prompt "The capital of France is"`,
			`run gemma.bundle --prompt "Once upon a time" -n 200 --temperature 0.8 --top-p 0.95 --seed 7`,
			"run gemma.bundle --ids 2,1596,603 -n 16 --json",
			"run gemma.bundle --prompt - < prompt.txt"),
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := parseMode(mode)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("prompt") == cmd.Flags().Changed("ids") {
				return usagef("run: give either --prompt or --ids")
			}
			if err := checkSampling(o); err != nil {
				return err
			}
			start := time.Now()
			e, err := engine.Open(args[0], engine.Options{Mode: m})
			if err != nil {
				return err
			}
			defer e.Close()
			g := &generation{Mode: m.String(), LoadSeconds: time.Since(start).Seconds()}
			tok, err := bundleTokenizer(args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("ids") {
				if g.PromptIDs, err = parseIDs(idList); err != nil {
					err = fmt.Errorf("--ids: %w", err)
				}
			} else {
				g.PromptIDs, err = s.encodePrompt(tok, args[0], prompt)
			}
			if err != nil {
				return err
			}
			var costs *runtime.Profile
			if profiled {
				costs = &runtime.Profile{}
			}
			if err := s.generate(cmd.Context(), e, tok, g, o, !asJSON, costs); err != nil {
				return err
			}
			if profiled {
				g.Profile = newProfile(costs, len(e.Contract().Chunks), runtime.ReadBandwidth(0))
			}
			if asJSON {
				return s.printJSON(g)
			}
			fmt.Fprintf(s.stderr, "%d prompt tokens, %d generated (%s), first after %.2f s, then %.1f tokens/s\n",
				len(g.PromptIDs), len(g.IDs), g.Stop, g.FirstSeconds, g.Rate)
			if g.Profile != nil {
				g.Profile.print(s.stderr)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&prompt, "prompt", "p", "", "`TEXT` to continue; - reads standard input")
	f.StringVar(&idList, "ids", "", "token ids to continue instead, as in `1,2,3`")
	f.IntVarP(&o.MaxTokens, "tokens", "n", 64, "generate up to `N` tokens")
	f.Float64Var(&o.Sampling.Temperature, "temperature", 0, "sample at this temperature; 0 takes the likeliest token")
	f.IntVar(&o.Sampling.TopK, "top-k", 0, "sample among the `K` likeliest tokens; 0 means all")
	f.Float64Var(&o.Sampling.TopP, "top-p", 0, "sample among the likeliest tokens of this total probability; 0 means all")
	f.Uint64Var(&o.Sampling.Seed, "seed", 0, "seed of the sampling")
	f.BoolVar(&o.IgnoreEOS, "ignore-eos", false, "go on after an end-of-text token")
	f.StringVar(&mode, "mode", "typed", "arithmetic: typed or fp32")
	f.BoolVar(&profiled, "profile", false, "show time, bytes and share by kind of op and by layer")
	f.BoolVar(&asJSON, "json", false, "print one JSON object at the end")
	completeDirs(cmd)
	completeValues(cmd, map[string][]string{"mode": {"typed", "fp32"}})
	return cmd
}

func checkSampling(o engine.GenerateOptions) error {
	p := o.Sampling
	switch {
	case o.MaxTokens < 1:
		return usagef("-n %d: want at least 1", o.MaxTokens)
	case !(p.Temperature >= 0):
		return usagef("--temperature %g: want 0 or more", p.Temperature)
	case p.TopK < 0:
		return usagef("--top-k %d: want 0 or more", p.TopK)
	case !(p.TopP >= 0 && p.TopP <= 1):
		return usagef("--top-p %g: want 0 to 1", p.TopP)
	}
	return nil
}

// generate fills g and, if stream is set, prints the text as it comes. costs,
// if not nil, gets what the ops cost.
func (s *session) generate(ctx context.Context, e *engine.Engine, tok *tokenizer.Tokenizer, g *generation, o engine.GenerateOptions, stream bool, costs *runtime.Profile) error {
	if n, limit := len(g.PromptIDs), e.Contract().Context; n >= limit {
		return fmt.Errorf("the prompt has %d tokens, which leaves no room in the bundle's context of %d (shorten it, or convert with a larger --context)", n, limit)
	}
	var text strings.Builder
	out := io.Writer(&text)
	if stream {
		out = io.MultiWriter(&text, s.stdout)
	}
	var decode *tokenizer.Stream
	if tok != nil {
		decode = tok.NewStream(tokenizer.DecodeOptions{SkipSpecial: true})
		for _, id := range g.PromptIDs {
			decode.Push(id)
		}
	}
	start := time.Now()
	var first time.Time
	o.OnToken = func(id int32) error {
		if first.IsZero() {
			first = time.Now()
		}
		var err error
		switch {
		case decode != nil:
			_, err = io.WriteString(out, decode.Push(id))
		case stream:
			_, err = fmt.Fprintf(s.stdout, "%d ", id)
		}
		return err
	}
	sequence := e.NewSession()
	sequence.Profile = costs
	ids, err := sequence.Generate(ctx, g.PromptIDs, o)
	if err != nil {
		return err
	}
	end := time.Now()
	if decode != nil {
		io.WriteString(out, decode.Flush())
	}
	if stream {
		fmt.Fprintln(s.stdout)
	}
	g.IDs, g.Text = ids, text.String()
	g.Stop = stopReason(e.Contract(), g, o)
	g.FirstSeconds = first.Sub(start).Seconds()
	if len(ids) > 1 {
		g.Rate = float64(len(ids)-1) / end.Sub(first).Seconds()
	}
	return nil
}

func stopReason(c *chunking.Contract, g *generation, o engine.GenerateOptions) string {
	switch last := g.IDs[len(g.IDs)-1]; {
	case !o.IgnoreEOS && slices.Contains(c.Model.EOS, int(last)):
		return "eos"
	case len(g.IDs) < o.MaxTokens:
		return "context"
	}
	return "length"
}

// bundleTokenizer loads the tokenizer of a bundle, nil if it has none.
func bundleTokenizer(dir string) (*tokenizer.Tokenizer, error) {
	path := filepath.Join(dir, chunking.HFDir, "tokenizer.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return tokenizer.Load(path)
}

func (s *session) encodePrompt(tok *tokenizer.Tokenizer, bundle, prompt string) ([]int32, error) {
	if tok == nil {
		return nil, fmt.Errorf("%s has no tokenizer (give token ids with --ids, or convert from a directory with a tokenizer.json)", bundle)
	}
	if prompt == "-" {
		data, err := io.ReadAll(s.stdin)
		if err != nil {
			return nil, fmt.Errorf("read the prompt: %w", err)
		}
		prompt = strings.TrimRight(string(data), "\n")
	}
	ids, err := tok.Encode(prompt, tokenizer.EncodeOptions{AddSpecial: true})
	if err == nil && len(ids) == 0 {
		return nil, fmt.Errorf("the prompt is empty, and the tokenizer adds nothing to it (give some text)")
	}
	return ids, err
}

func parseMode(mode string) (runtime.Mode, error) {
	for _, m := range []runtime.Mode{runtime.Typed, runtime.FP32} {
		if m.String() == mode {
			return m, nil
		}
	}
	return 0, usagef("--mode %s: want typed or fp32", mode)
}

// parseIDs reads token ids separated by commas or blanks.
func parseIDs(list string) ([]int32, error) {
	var ids []int32
	for _, f := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' }) {
		n, err := strconv.ParseInt(f, 10, 32)
		if err != nil || n < 0 {
			return nil, usagef("%q is not a token id", f)
		}
		ids = append(ids, int32(n))
	}
	if len(ids) == 0 {
		return nil, usagef("no token ids")
	}
	return ids, nil
}
