package tokenizer

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOracleCorpus compares every line of NAME.jsonl.gz in the directory
// SMELT_TOKENIZER_ORACLES, {"t": text, "ids": [...]}, with the tokenizer of
// NAME/tokenizer.json in the directory SMELT_TOKENIZER_FILES, which
// interop/tokenizers.sh fills. The lines were recorded without special tokens
// added (checked against the reference library, for Gemma too).
func TestOracleCorpus(t *testing.T) {
	oracles, files := os.Getenv("SMELT_TOKENIZER_ORACLES"), os.Getenv("SMELT_TOKENIZER_FILES")
	if oracles == "" || files == "" {
		t.Skip("set SMELT_TOKENIZER_ORACLES and SMELT_TOKENIZER_FILES to run the full corpus")
	}
	paths, err := filepath.Glob(filepath.Join(oracles, "*.jsonl.gz"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no *.jsonl.gz in %s (%v)", oracles, err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".jsonl.gz")
		t.Run(name, func(t *testing.T) {
			tok, err := Load(filepath.Join(files, name))
			if err != nil {
				t.Fatal(err)
			}
			lines, wrong := 0, 0
			for _, line := range readOracle(t, path) {
				lines++
				got, err := tok.Encode(line.Text, EncodeOptions{})
				if err != nil {
					t.Fatalf("line %d: %v", lines, err)
				}
				if !slices.Equal(got, line.IDs) {
					if wrong++; wrong <= 5 {
						t.Errorf("line %d: %q\n got %v\nwant %v", lines, line.Text, got, line.IDs)
					}
				}
			}
			t.Logf("%d of %d lines equal", lines-wrong, lines)
		})
	}
}

type oracleLine struct {
	Text string  `json:"t"`
	IDs  []int32 `json:"ids"`
}

func readOracle(t *testing.T, path string) []oracleLine {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []oracleLine
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var line oracleLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: line %d: %v", path, len(out)+1, err)
		}
		out = append(out, line)
	}
	if err := lines.Err(); err != nil || len(out) == 0 {
		t.Fatalf("%s: %d lines, %v", path, len(out), err)
	}
	return out
}
