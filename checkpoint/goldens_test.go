package checkpoint

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestGoldens opens every checkpoint below the directory SMELT_GOLDENS names,
// reads every tensor and expects finite weights.
func TestGoldens(t *testing.T) {
	root := os.Getenv("SMELT_GOLDENS")
	if root == "" {
		t.Skip("set SMELT_GOLDENS to a directory of checkpoints")
	}
	opened := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".safetensors" && d.Name() != "config.json" {
			return err
		}
		if d.Name() == "config.json" {
			path = filepath.Dir(path)
		}
		c, err := Open(path)
		if err != nil {
			t.Error(err)
			return nil
		}
		defer c.Close()
		opened++
		for _, name := range c.Names() {
			x := get(t, c, name)
			values, err := ReadAll(x)
			if err != nil {
				t.Error(err)
			}
			for i, v := range values {
				if d.Name() == "config.json" && (math.IsNaN(float64(v)) || math.IsInf(float64(v), 0)) {
					t.Errorf("%s: tensor %q: element %d is %v", path, name, i, v)
					break
				}
			}
		}
		return nil
	})
	if err != nil || opened == 0 {
		t.Fatalf("opened %d checkpoints, error %v", opened, err)
	}
	t.Logf("opened %d checkpoints and files", opened)
}
