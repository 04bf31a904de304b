package checkpoint

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestKilledWriter kills a process in the middle of replacing a checkpoint: the
// old one still opens, and the next run clears up.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv("SMELT_KILLED_WRITER"); dir != "" {
		err := WriteSharded(dir, []Tensor{NewFloat32("x", []int{1}, []float32{2}), stuck{}}, nil, 4)
		t.Fatalf("the writer ended: %v", err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("a dead writer's files are not recognised here")
	}
	dir := t.TempDir()
	old := []Tensor{NewFloat32("x", []int{1}, []float32{1}), NewFloat32("y", []int{1}, []float32{1})}
	if err := WriteSharded(dir, old, nil, 4); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)

	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriter$")
	cmd.Env = append(os.Environ(), "SMELT_KILLED_WRITER="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "stuck\n" {
		t.Errorf("the writer said %q, error %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	var partials int
	for name, content := range snapshot(t, dir) {
		if strings.HasSuffix(name, partialSuffix) {
			partials++
		} else if content != before[name] {
			t.Errorf("%s changed", name)
		}
	}
	if partials == 0 {
		t.Error("the killed writer left nothing: the test did not interrupt it")
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	if err := WriteSharded(dir, old, nil, 0); err != nil {
		t.Fatal(err)
	}
	if names := list(t, dir); !slices.Equal(names, []string{"model.safetensors"}) {
		t.Errorf("after the next run: %v", names)
	}
	if matches, _ := filepath.Glob(filepath.Join(dir, ".*")); len(matches) > 0 {
		t.Errorf("left behind: %v", matches)
	}
}

// stuck is a tensor whose data never ends.
type stuck struct{}

func (stuck) Name() string                     { return "y" }
func (stuck) DType() DType                     { return F32 }
func (stuck) Shape() []int                     { return []int{1} }
func (stuck) ReadFloat32([]float32, int) error { return nil }
func (stuck) WriteTo(w io.Writer) (int64, error) {
	fmt.Println("stuck")
	time.Sleep(time.Hour)
	return 0, nil
}
