package mlx

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The text is what Python's json.dump(…, indent=4) writes.
func TestRender(t *testing.T) {
	in := `{"b": [1, 2.50, 1e-06], "a": {"z": null, "y": true}, "e": [], "o": {}, "s": "ä\"\n😀\u0001"}`
	o, err := parseObject([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := `{
    "a": {
        "z": null,
        "y": true
    },
    "b": [
        1,
        2.50,
        1e-06
    ],
    "e": [],
    "o": {},
    "s": "\u00e4\"\n\ud83d\ude00\u0001"
}`
	if d := cmp.Diff(want, string(render(o.sorted()))); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"", "[]", `{"a": 1, "a": 2}`, `{"a": 1} {`, `{"a"`} {
		if _, err := parseObject([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestOlderSpellings(t *testing.T) {
	c, err := parseObject([]byte(`{"model_type": "gemma3_text", "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
 "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                     "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if w := olderSpellings(c); len(w) != 0 {
		t.Errorf("warnings %q", w)
	}
	for key, want := range map[string]string{"rope_theta": "1000000.0", "rope_local_base_freq": "10000.0", "sliding_window_pattern": "2",
		"rope_scaling": "{\n    \"rope_type\": \"linear\",\n    \"factor\": 8.0\n}"} {
		if v, ok := c.get(key); !ok || string(render(v)) != want {
			t.Errorf("%s is %s, want %s", key, render(v), want)
		}
	}
	c, err = parseObject([]byte(`{"model_type": "gemma3_text", "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if w := olderSpellings(c); len(w) != 1 {
		t.Errorf("warnings %q, want one", w)
	}
}
