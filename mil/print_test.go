package mil

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

func TestPrintSample(t *testing.T) {
	p := sample(t)
	p.Default = "main"
	find(p.Functions["main"], "h").Tags = map[string]string{"residual": "source", "keep": "fp32"}
	golden(t, "sample.txt", Text(p))
}

func TestPrintConstants(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	for _, c := range []struct {
		name string
		c    Const
	}{
		{"scalar_fp16", NewFloats(Float16, nil, 0.1)},
		{"scalar_fp32", NewFloats(Float32, nil, 0.1)},
		{"infinite", NewFloats(Float16, []int{2}, -1e9, 1e9)},
		{"matrix", NewInts(Int32, []int{2, 3}, 1, -2, 3, -4, 5, -6)},
		{"nibbles", NewInts(Int4, []int{3}, 7, -8, -1)},
		{"flags", NewBools([]int{2}, true, false)},
		{"text", NewStr("same \"lower\"")},
		{"empty", NewInts(Int32, []int{0})},
		{"large", NewInts(Int32, []int{17}, make([]int, 17)...)},
	} {
		b.Const(c.name, c.c)
	}
	x := b.Input("x", T(Float16, 4, Unknown))
	b.Output("out", b.Op("relu", "r", Args{"x": x}))
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	if err := Print(&s, program(f), PrintOptions{Hash: true}); err != nil {
		t.Fatal(err)
	}
	golden(t, "constants.txt", s.String())
	s.Reset()
	if err := Print(&s, program(f), PrintOptions{MaxInline: 2}); err != nil {
		t.Fatal(err)
	}
	golden(t, "constants_short.txt", s.String())
}

func TestPrintReportsUnreadableConstants(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	b.Const("w", lazy{T(Float16, 100)})
	b.Output("out", b.Op("relu", "r", Args{"x": b.Input("x", T(Float16, 1))}))
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	if err := Print(&strings.Builder{}, program(f), PrintOptions{Hash: true}); err == nil {
		t.Error("a constant that cannot be read was hashed")
	}
	if s := Text(program(f)); !strings.Contains(s, "w = const(…): tensor<fp16, [100]>") {
		t.Errorf("without hashes a large constant need not be read:\n%s", s)
	}
}
