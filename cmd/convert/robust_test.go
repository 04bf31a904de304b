package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
)

// binary is a path under which this test binary behaves as the command: see
// TestMain.
func binary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "smelt")
	if err := os.Symlink(self, path); err != nil {
		t.Skip(err)
	}
	return path
}

func fixture(t *testing.T, name string) string {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// names lists a directory, hidden files included.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestLateFailure meets a NaN in the last tensor, with most of the output
// written: nothing may stay behind.
func TestLateFailure(t *testing.T) {
	work := t.TempDir()
	src := filepath.Join(work, "src")
	if err := os.CopyFS(src, os.DirFS(fixture(t, "qwen2"))); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(src, "model.safetensors")
	data, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1], data[len(data)-2] = 0x7f, 0xc0
	if err := os.WriteFile(model, data, 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	s := &session{stdout: &out, stderr: &errs}
	args := []string{"smelt", "convert", src, "-o", filepath.Join(work, "out"), "--residual-scale", "1"}
	if code := s.execute(t.Context(), args); code != exitError {
		t.Fatalf("exit code %d, want %d\n%s%s", code, exitError, out.String(), errs.String())
	}
	if !strings.Contains(errs.String(), "NaN") || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("standard error is not one line about the NaN:\n%s", errs.String())
	}
	if got := names(t, work); !slices.Equal(got, []string{"src"}) {
		t.Errorf("the failed conversion left %v", got)
	}
}

// TestFullDisk writes to a file system that is too small.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=768k", "tmpfs", disk).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small file system: %s", out)
	}
	defer func() {
		if out, err := exec.Command("umount", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	}()
	smelt := binary(t)
	bundle := filepath.Join(t.TempDir(), "bundle")
	if out, err := exec.Command(smelt, "convert", fixture(t, "qwen2"), "-o", bundle).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	for _, args := range [][]string{
		{"convert", fixture(t, fixtures.DemoName), "-o", filepath.Join(disk, "out")},
		{"logits", bundle, "--ids", manyIDs(t), "-o", filepath.Join(disk, "out")},
	} {
		cmd := exec.Command(smelt, args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != exitError {
			t.Errorf("%s: exit code %d, want %d", args[0], code, exitError)
		}
		if got := errs.String(); !strings.Contains(got, "no space left on device") || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: standard error is not one line about the disk:\n%s", args[0], got)
		}
		if got := names(t, disk); len(got) > 0 {
			t.Errorf("%s left %v on the full disk", args[0], got)
		}
	}
}

// manyIDs is a file with so many ids that their logits fill the disk.
func manyIDs(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ids.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("5 ", 256)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKilled kills conversions at several moments. What exists afterwards is
// a whole bundle, and the next run clears up.
func TestKilled(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs kill")
	}
	smelt, src, work := binary(t), fixture(t, "gemma3"), t.TempDir()
	out := filepath.Join(work, "out")
	convert := func() *exec.Cmd { return exec.Command(smelt, "convert", src, "-o", out, "--chunks", "3", "--force") }
	start := time.Now()
	if text, err := convert().CombinedOutput(); err != nil {
		t.Fatalf("%s", text)
	}
	whole := time.Since(start)
	for i := range 8 {
		cmd := convert()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(whole * time.Duration(i+1) / 9)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if _, err := os.Stat(out); err == nil {
			e, err := engine.Open(out, engine.Options{})
			if err != nil {
				t.Fatalf("killed after %d/9: %v", i+1, err)
			}
			e.Close()
		}
	}
	if text, err := convert().CombinedOutput(); err != nil {
		t.Fatalf("after the kills: %s", text)
	}
	if got := names(t, work); !slices.Equal(got, []string{"out"}) {
		t.Errorf("after the next run: %v", got)
	}
}
