package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
)

// TestMain lets scripts run the command as a process of its own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"smelt": main})
}

// TestScripts runs the command lines in testdata/script.
func TestScripts(t *testing.T) {
	dir, err := fixtures.Dir(fixtures.DemoName)
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("FIXTURES", filepath.Dir(dir))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"copydir": copydir,
			"subst":   subst,
			"cut":     cut,
			"tensors": tensors,
			"lines":   lines,
		},
	})
}

// exits CODE COMMAND... runs a command and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// lines N checks that standard error of the last command has N lines.
func lines(ts *testscript.TestScript, neg bool, args []string) {
	text := ts.ReadFile("stderr")
	if n := strings.Count(text, "\n"); neg || strconv.Itoa(n) != args[0] {
		ts.Fatalf("standard error has %d lines, want %s:\n%s", n, args[0], text)
	}
}

// copydir SOURCE TARGET copies a directory.
func copydir(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(os.CopyFS(ts.MkAbs(args[1]), os.DirFS(ts.MkAbs(args[0]))))
}

// subst FILE OLD NEW replaces the first OLD, which must be there.
func subst(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	if !strings.Contains(string(data), args[1]) {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(path, []byte(strings.Replace(string(data), args[1], args[2], 1)), 0o644))
}

// cut FILE BYTES takes BYTES off the end of a file.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	st, err := os.Stat(path)
	ts.Check(err)
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(path, st.Size()-n))
}

// tensors FILE drop NAME | rename NAME NEW | flip NAME | nan NAME | zero NAME |
// add NAME rewrites a safetensors file. zero takes a pattern with *.
func tensors(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	f, err := checkpoint.OpenFile(path)
	ts.Check(err)
	defer f.Close()
	var out []checkpoint.Tensor
	hit := args[1] == "add"
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		match, err := filepath.Match(args[2], name)
		ts.Check(err)
		if name == args[2] || args[1] == "zero" && match {
			hit = true
			raw, err := checkpoint.ReadBytes(t)
			ts.Check(err)
			shape := append([]int(nil), t.Shape()...)
			switch args[1] {
			case "drop":
				continue
			case "rename":
				t = checkpoint.Rename(t, args[3])
			case "flip":
				shape[0], shape[1] = shape[1], shape[0]
				t, err = checkpoint.NewRaw(name, t.DType(), shape, raw)
			case "zero":
				t, err = checkpoint.NewRaw(name, t.DType(), shape, make([]byte, len(raw)))
			case "nan":
				raw[20], raw[21] = 0xc0, 0x7f
				t, err = checkpoint.NewRaw(name, t.DType(), shape, raw)
			}
			ts.Check(err)
		}
		out = append(out, t)
	}
	if !hit {
		ts.Fatalf("%s has no tensor %s", args[0], args[2])
	}
	if args[1] == "add" {
		out = append(out, checkpoint.NewFloat32(args[2], []int{2, 3}, make([]float32, 6)))
	}
	ts.Check(checkpoint.WriteFile(path, out, f.Metadata()))
}
