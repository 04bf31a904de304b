package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitPass  = 0
	exitGate  = 1 // a gate compared and said no
	exitError = 2
)

// errGate is returned by a verb whose gate failed after it has printed why.
var errGate = errors.New("gate failed")

// session is one invocation: its streams and the name it was called by.
type session struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	name           string
	goRun          bool // started by go run: there is no command of that name
}

// execute runs the command line and returns the exit code.
func (s *session) execute(ctx context.Context, args []string) (code int) {
	s.name, s.goRun = commandName(args[0])
	defer func() {
		if p := recover(); p != nil {
			hint := "set SMELT_TRACE=1 to see where, and please report it"
			if os.Getenv("SMELT_TRACE") != "" {
				hint = "trace follows\n" + string(debug.Stack())
			}
			fmt.Fprintf(s.stderr, "%s: internal error: %v (%s)\n", s.name, p, hint)
			code = exitError
		}
	}()
	out := &sink{Writer: s.stdout}
	s.stdout = out
	root := s.root()
	root.SetArgs(args[1:])
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = out.err
	}
	switch {
	case err == nil:
		return exitPass
	case errors.Is(err, errGate):
		return exitGate
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = errors.New("interrupted; nothing was left behind")
	}
	var usage usageError
	if errors.As(err, &usage) {
		err = fmt.Errorf("%w (see %s -h)", err, cmd.CommandPath())
	}
	fmt.Fprintf(s.stderr, "%s: %s\n", s.name, oneLine(err))
	return exitError
}

// commandName is the name the root command goes by: that of the binary.
// go run names the binary after its directory, which is not what anybody
// calls it.
func commandName(arg0 string) (name string, goRun bool) {
	name = strings.TrimSuffix(filepath.Base(arg0), ".exe")
	if name == "convert" {
		return "smelt", true
	}
	return name, false
}

// oneLine joins the lines of an error, so that a log has one entry an error.
func oneLine(err error) string {
	var parts []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	text := strings.Join(parts, "; ")
	return strings.ReplaceAll(text, ":;", ":")
}

// usageError marks a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// takes checks the number of arguments of a verb: at least low, at most high.
func takes(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch _, what, _ := strings.Cut(cmd.Use, " "); {
		case len(args) < low:
			return usagef("%s needs more arguments: %s", cmd.Name(), what)
		case len(args) > high:
			return usagef("%s: unexpected argument %q", cmd.Name(), args[high])
		}
		return nil
	}
}

func (s *session) root() *cobra.Command {
	root := &cobra.Command{
		Use:   s.name,
		Short: "Checkpoints in, Core ML out",
		Long: `Turns a Hugging Face checkpoint (Llama 3, SmolLM2, Qwen 2, Qwen 3, Gemma 3 and 4)
into a Core ML bundle, runs the bundle, and says whether it computes what
PyTorch does. Everything here runs on any machine with Go.`,
		Example: s.examples(
			"demo                                        the whole pipeline on a built-in model",
			"convert ./gemma-3-270m -o gemma.bundle      convert",
			`run gemma.bundle --prompt "Once upon a"     generate text`,
			"parity gemma.bundle --checkpoint ./gemma-3-270m"),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q%s", args[0], suggestion(cmd, args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(s.stderr)
			_ = cmd.Help()
			return usagef("say what to do")
		},
	}
	root.SetIn(s.stdin)
	root.SetOut(s.stdout)
	root.SetErr(s.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		s.demoCommand(), s.inspectCommand(), s.convertCommand(), s.runCommand(), s.logitsCommand(),
		s.quantizeCommand(), s.rotateCommand(), s.sensitivityCommand(), s.allocateCommand(), s.reportCommand(), s.captureCommand(), s.evalCommand(), s.acceptCommand(), s.parityCommand(), s.lintCommand(), s.tokenizeCommand(), s.versionCommand(),
	)
	return root
}

func suggestion(cmd *cobra.Command, arg string) string {
	if near := cmd.SuggestionsFor(arg); len(near) > 0 {
		return fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
	}
	return ""
}

// examples prints the lines of a verb's help with the command's name in front.
func (s *session) examples(lines ...string) string {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("  " + s.name + " " + l)
	}
	return b.String()
}
