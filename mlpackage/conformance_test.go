package mlpackage_test

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/smelt-go/smelt/mlpackage"
)

// TestReadCorpus decodes every model of the op-conformance corpus in the
// directory that SMELT_CONFORMANCE names.
func TestReadCorpus(t *testing.T) {
	dir := os.Getenv("SMELT_CONFORMANCE")
	if dir == "" {
		t.Skip("SMELT_CONFORMANCE is not set")
	}
	zips, err := filepath.Glob(filepath.Join(dir, "*.zip"))
	if err != nil || len(zips) == 0 {
		t.Fatalf("no zips in %s (%v)", dir, err)
	}
	cases := 0
	for _, path := range zips {
		z, err := zip.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		var index []struct{ Case string }
		if err := json.Unmarshal(entry(t, z, "index.json"), &index); err != nil {
			t.Fatal(err)
		}
		for _, c := range index {
			cases++
			model, weights := entry(t, z, c.Case+"/model.mlmodel"), entry(t, z, c.Case+"/weights/weight.bin")
			if _, err := mlpackage.ReadModel(c.Case, model, weights, mlpackage.ReadOptions{NoVerify: true}); err != nil {
				t.Errorf("%s: %v", filepath.Base(path), err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d models", cases)
}

// entry reads a file of a zip, nil if it has none of that name.
func entry(t *testing.T, z *zip.ReadCloser, name string) []byte {
	t.Helper()
	f, err := z.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
