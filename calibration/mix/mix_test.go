package mix_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/smelt-go/smelt/calibration/mix"
)

// Every line is a text of a domain, and no domain is a small part only.
func TestLines(t *testing.T) {
	size, total := map[string]int{}, 0
	for i, line := range bytes.Split(bytes.TrimSpace(mix.JSONL()), []byte("\n")) {
		var v struct{ Domain, Text string }
		if err := json.Unmarshal(line, &v); err != nil || v.Domain == "" || len(v.Text) < 200 {
			t.Errorf("line %d: %q: %v", i, line, err)
		}
		size[v.Domain] += len(v.Text)
		total += len(v.Text)
	}
	for d, n := range size {
		if 3*n*len(size) < total {
			t.Errorf("%s has %d bytes of %d", d, n, total)
		}
	}
	if len(size) < 6 {
		t.Errorf("%d domains", len(size))
	}
}

// The first lines' beginnings.
func Example() {
	for _, line := range bytes.SplitN(mix.JSONL(), []byte("\n"), 3)[:2] {
		fmt.Printf("%s…\n", line[:43])
	}
	// Output:
	// {"domain": "prose", "text": "The ferry left…
	// {"domain": "prose", "text": "Bread is mostl…
}
