package atomicdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(text string) func(string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), []byte(text), 0o644) }
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path, "f"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func onlyEntry(t *testing.T, parent, name string) {
	t.Helper()
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != name {
			t.Errorf("%s is left behind", e.Name())
		}
	}
}

func TestWrite(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "x.d")
	if err := Write(path, Options{}, put("one")); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, Options{}, put("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing directory: %v", err)
	}
	if got := content(t, path); got != "one" {
		t.Errorf("refused write left %q", got)
	}
	if err := Write(path, Options{Force: true}, put("two")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, path); got != "two" {
		t.Errorf("forced write left %q", got)
	}
	boom := errors.New("boom")
	if err := Write(path, Options{Force: true}, func(dir string) error { _ = put("x")(dir); return boom }); !errors.Is(err, boom) {
		t.Errorf("failing fill: %v", err)
	}
	if got := content(t, path); got != "two" {
		t.Errorf("failed write left %q", got)
	}
	onlyEntry(t, parent, "x.d")
}

func TestWriteAfterKill(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "x")
	for _, d := range []string{".x.partial/sub", ".x.old"} {
		if err := os.MkdirAll(filepath.Join(parent, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := put("before")(filepath.Join(parent, ".x.old")); err != nil {
		t.Fatal(err)
	}
	// Killed between the two renames: the old content counts as existing.
	if err := Write(path, Options{}, put("after")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("after a kill: %v", err)
	}
	if got := content(t, path); got != "before" {
		t.Errorf("recovered %q", got)
	}
	if err := Write(path, Options{Force: true}, put("after")); err != nil {
		t.Fatal(err)
	}
	onlyEntry(t, parent, "x")
}

func TestWriteRefusesNames(t *testing.T) {
	for _, p := range []string{"", ".", "..", "/", "a/.."} {
		if err := Write(p, Options{Force: true}, put("x")); err == nil || !strings.Contains(err.Error(), "not a name") {
			t.Errorf("%q: %v", p, err)
		}
	}
}
