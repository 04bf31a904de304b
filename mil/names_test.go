package mil

import (
	"testing"

	"pgregory.net/rapid"
)

func TestSanitizeName(t *testing.T) {
	for in, want := range map[string]string{
		"layers.3.attn_out": "layers_3_attn_out",
		"x":                 "x",
		"3d":                "_3d",
		"":                  "_",
		"state":             "state_",
		"fp16":              "fp16_",
		"int4":              "int4",
		"Tensor":            "Tensor",
		"a/b:0":             "a_b_0",
		"é":                 "__",
		"_":                 "_",
	} {
		if got := SanitizeName(in); got != want {
			t.Errorf("SanitizeName(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestNamerSuffixes(t *testing.T) {
	var n Namer
	n.Reserve("x_1")
	var got []string
	for range 3 {
		got = append(got, n.Unique("x"))
	}
	if got[0] != "x" || got[1] != "x_2" || got[2] != "x_3" {
		t.Errorf("got %q, want x, x_2, x_3", got)
	}
	n.Release("x_2")
	if !n.Reserve("x_2") || n.Reserve("x_2") {
		t.Error("a released name can be claimed once")
	}
}

// Every sequence of names comes out legal and unique, and legal names that
// come first stay as they are.
func TestNamerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n Namer
		seen := map[string]bool{}
		names := rapid.SliceOf(rapid.StringMatching(`[a-c0-1_.é]{0,3}|state|true|x_1|x`)).Draw(t, "names")
		for _, name := range names {
			free := LegalName(name) && !seen[name]
			u := n.Unique(name)
			if !LegalName(u) || seen[u] {
				t.Fatalf("Unique(%q) = %q: illegal or a repeat", name, u)
			}
			if free && u != name {
				t.Fatalf("Unique(%q) = %q though the name was free", name, u)
			}
			seen[u] = true
		}
	})
}
