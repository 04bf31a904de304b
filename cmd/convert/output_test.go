package main

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestByteSize(t *testing.T) {
	for in, want := range map[string]int64{
		"4096": 4096, "950MB": 950_000_000, "950 mb": 950_000_000, "1GiB": 1 << 30, "1.5k": 1500, "2m": 2_000_000, "7B": 7, "3KiB": 3072,
	} {
		var b byteSize
		if err := b.Set(in); err != nil || int64(b) != want {
			t.Errorf("%q: %d, %v; want %d", in, b, err, want)
		}
	}
	for _, in := range []string{"", "MB", "-1", "0", "0.1", "1TB?", "ten", "NaN", "Inf", "1e30GB"} {
		var b byteSize
		if err := b.Set(in); err == nil {
			t.Errorf("%q: taken as %d", in, b)
		}
	}
	if s := new(byteSize).String(); s != "" {
		t.Errorf("the unset size prints as %q", s)
	}
}

// TestLostOutput: text that could not be printed is an error of every verb.
func TestLostOutput(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"version", "--json"}, {"inspect", fixture(t, "qwen2")}, {"-h"}} {
		var errs strings.Builder
		s := &session{stdout: broken{}, stderr: &errs}
		if code := s.execute(t.Context(), append([]string{"smelt"}, args...)); code != exitError || errs.String() != "smelt: the pipe is gone\n" {
			t.Errorf("%v: exit code %d, standard error %q", args, code, errs.String())
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the pipe is gone") }

func TestCommandName(t *testing.T) {
	for arg, want := range map[string]string{
		"/tmp/go-build1/b001/exe/convert": "smelt",
		"/usr/local/bin/smelt":            "smelt",
		"melt-1.2":                        "melt-1.2",
		"./smelt.exe":                     "smelt",
	} {
		if name, goRun := commandName(arg); name != want || goRun != strings.HasSuffix(arg, "convert") {
			t.Errorf("%s: %s, %v; want %s", arg, name, goRun, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	err := errors.New("models: it does not fit:\n  tensor a is missing\n  tensor b is missing\n")
	if got, want := oneLine(err), "models: it does not fit: tensor a is missing; tensor b is missing"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWrapKeepsWords also checks the width of every line.
func TestWrapKeepsWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,9}`), 1, 40).Draw(t, "words")
		width := rapid.IntRange(10, 40).Draw(t, "width")
		got := wrap(strings.Join(words, " "), width, "  ")
		if back := strings.Join(strings.Fields(got), " "); back != strings.Join(words, " ") {
			t.Fatalf("%q", back)
		}
		for i, line := range strings.Split(got, "\n") {
			if i > 0 {
				line = strings.TrimPrefix(line, "  ")
			}
			if len(line) > width {
				t.Fatalf("line %q is longer than %d", line, width)
			}
		}
		if c := clip(got, width); len(c) > width+len(" …") {
			t.Fatalf("clip gives %q", c)
		}
	})
}

func TestCommas(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1445376: "1,445,376"} {
		if got := commas(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"a/b-c.d": "a/b-c.d", "my model": "'my model'", "it's": `'it'\''s'`, "": "''"} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
