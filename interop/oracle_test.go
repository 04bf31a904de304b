package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// python returns the interpreter that has coremltools, or skips.
func python(t *testing.T) string {
	t.Helper()
	p := os.Getenv("SMELT_PYTHON")
	if p == "" {
		t.Skip("SMELT_PYTHON is not set")
	}
	return p
}

// oracle runs a script of the oracles directory and returns its output.
func oracle(t *testing.T, script string, args ...string) ([]byte, error) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("oracles", script))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t), append([]string{path}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if err != nil {
		t.Logf("%s: %v\n%s", script, err, tail(errs.Bytes(), 2000))
	}
	return out.Bytes(), err
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// finding is one line of check_package.py --json.
type finding struct {
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Where    string `json:"where"`
	Message  string `json:"message"`
}

// checkPackages demands that coremltools loads all packages and that nothing
// about them is an error or a warning.
func checkPackages(t *testing.T, paths ...string) {
	t.Helper()
	out, err := oracle(t, "check_package.py", append([]string{"--json"}, paths...)...)
	var doc any
	if e := json.Unmarshal(out, &doc); e != nil {
		t.Fatalf("check_package.py: %v, %v\n%s", err, e, tail(out, 2000))
	}
	var found []finding
	collect(doc, &found)
	errors, warnings := 0, 0
	for _, f := range found {
		switch f.Severity {
		case "error":
			errors++
			t.Errorf("[%s] %s: %s", f.Code, f.Where, f.Message)
		case "warning":
			warnings++
			t.Errorf("warning [%s] %s: %s", f.Code, f.Where, f.Message)
		}
	}
	if err != nil && errors == 0 {
		t.Errorf("check_package.py: %v", err)
	}
	t.Logf("%d packages: %d errors, %d warnings", len(paths), errors, warnings)
}

// collect finds every object with a severity.
func collect(v any, out *[]finding) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			collect(x, out)
		}
	case map[string]any:
		if _, ok := v["severity"].(string); ok {
			b, _ := json.Marshal(v)
			var f finding
			_ = json.Unmarshal(b, &f)
			*out = append(*out, f)
			return
		}
		for _, x := range v {
			collect(x, out)
		}
	}
}
