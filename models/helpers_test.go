package models_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/models"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// set are changes to a config.json; a nil value deletes the key.
type set = map[string]any

var null = json.RawMessage("null")

// dirOf is the directory of a fixture, or of a variant of the reference.
func dirOf(t testing.TB, name string) string {
	t.Helper()
	if v := filepath.Join("..", "parity", "reference", "testdata", name); exists(v) {
		return v
	}
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// config returns a fixture's config.json with changes.
func config(t testing.TB, name string, changes set) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dirOf(t, name), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var fields set
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for k, v := range changes {
		if v == nil {
			delete(fields, k)
		} else {
			fields[k] = v
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func parse(t testing.TB, data []byte) *models.Config {
	t.Helper()
	c, err := models.ParseConfig(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// source is a checkpoint in memory.
type source map[string]checkpoint.Tensor

func (s source) Names() []string { return slices.Sorted(maps.Keys(s)) }
func (s source) Tensor(name string) (checkpoint.Tensor, bool) {
	t, ok := s[name]
	return t, ok
}

// load opens a fixture's tensors.
func load(t testing.TB, name string) source {
	t.Helper()
	c, err := checkpoint.Open(dirOf(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s := source{}
	for _, n := range c.Text().Names() {
		s[n], _ = c.Text().Tensor(n)
	}
	return s
}

// golden compares text with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			line := func(s []string) string {
				if i < len(s) {
					return s[i]
				}
				return "(end)"
			}
			t.Fatalf("%s, line %d:\n  got  %s\n  want %s\n(accept with -update)", path, i+1, line(g), line(w))
		}
	}
}
