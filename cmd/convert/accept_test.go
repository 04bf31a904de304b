package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/internal/testmodel"
)

// TestAcceptScripts runs the command lines in testdata/accept. DRAFTER is the
// trained drafter of the demo's model, LLAMA a model that the recorded drafters
// which read taps could belong to.
func TestAcceptScripts(t *testing.T) {
	dir, err := fixtures.Dir(fixtures.DemoName)
	if err != nil {
		t.Fatal(err)
	}
	drafter, err := filepath.Abs(filepath.Join("..", "..", "speculate", "testdata", "tiny-gemma3-drafter"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "accept"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("FIXTURES", filepath.Dir(dir))
			e.Setenv("TARGET", dir)
			llama := filepath.Join(e.WorkDir, "llama")
			e.Setenv("LLAMA", llama)
			if err := os.Mkdir(llama, 0o755); err != nil {
				return err
			}
			if err := testmodel.Llama(llama); err != nil {
				return err
			}
			copied := filepath.Join(e.WorkDir, "drafter")
			e.Setenv("DRAFTER", copied)
			if err := os.CopyFS(copied, os.DirFS(drafter)); err != nil {
				return err
			}
			data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(copied, "tokenizer.json"), data, 0o644)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "lines": lines, "subst": subst, "copydir": copydir, "tensors": tensors},
	})
}
