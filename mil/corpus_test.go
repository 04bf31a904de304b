package mil_test

import (
	"archive/zip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

// TestVerifyCorpus runs the verifier over programs that coremltools wrote, at
// all opsets: the zips of the directory that SMELT_CONFORMANCE names. Loosely,
// all must pass but those with operators that are left out by name; strictly,
// only the rules that ask more than Core ML does may speak.
func TestVerifyCorpus(t *testing.T) {
	dir := os.Getenv("SMELT_CONFORMANCE")
	if dir == "" {
		t.Skip("SMELT_CONFORMANCE is not set")
	}
	zips, err := filepath.Glob(filepath.Join(dir, "*.zip"))
	if err != nil || len(zips) == 0 {
		t.Fatalf("no zips in %s (%v)", dir, err)
	}
	own := map[string]bool{"output": true, "duplicate": true, "loader": true}
	programs, leftOut := 0, 0
	for _, path := range zips {
		eachProgram(t, path, func(name string, p *mil.Program) {
			programs++
			_, err := mil.VerifyLoose(p)
			if err != nil && strings.Contains(err.Error(), "is not supported (") {
				leftOut++
				return
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, f := range mil.Check(p, false) {
				if f.Severity == mil.Error && !own[f.Rule] {
					t.Errorf("%s: strict: %v", name, f)
				}
			}
		})
	}
	if leftOut*10 > programs {
		t.Errorf("%d of %d programs need operators that are left out", leftOut, programs)
	}
	t.Logf("%d programs, %d of them with operators that are left out", programs, leftOut)
}

func eachProgram(t *testing.T, path string, f func(name string, p *mil.Program)) {
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	read := func(name string) []byte {
		r, err := z.Open(name)
		if err != nil {
			return nil
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var index []struct{ Case string }
	if err := json.Unmarshal(read("index.json"), &index); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, c := range index {
		p, err := mlpackage.ReadModel(c.Case, read(c.Case+"/model.mlmodel"), read(c.Case+"/weights/weight.bin"), mlpackage.ReadOptions{NoVerify: true})
		if err != nil {
			t.Error(err)
			continue
		}
		f(c.Case, p.Program)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
