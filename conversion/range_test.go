package conversion_test

import (
	"math"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/conversion"
)

// TestEmbeddingRows: rows of the table that no probe reads count as well.
func TestEmbeddingRows(t *testing.T) {
	const table = "model.embed_tokens.weight"
	row := func(x float32) string {
		return variant(t, "llama3-scaled", func(all map[string]checkpoint.Tensor) {
			values(t, all, table, func(i int, v float32) float32 {
				if i == 100*all[table].Shape()[1] {
					return x
				}
				return v
			})
		}, nil)
	}
	for _, tt := range []struct {
		name string
		src  string
		o    conversion.Options
		want string
	}{
		{"NaN, no probe", row(float32(math.NaN())), conversion.Options{Compute: "fp32"}, `"` + table + `": element 9600 is NaN`},
		{"NaN, scale as asked for", row(float32(math.NaN())), conversion.Options{ResidualScale: 1}, "is NaN"},
		{"infinity", row(float32(math.Inf(-1))), conversion.Options{}, "is -Inf"},
		{"beyond fp16, scale as asked for", row(1e5), conversion.Options{ResidualScale: 1}, "beyond fp16's 65504"},
	} {
		_, err := conversion.Convert(t.Context(), tt.src, t.TempDir()+"/b", tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, rep := convert(t, row(-3e5), conversion.Options{}); rep.ResidualScale != 1.0/8 {
		t.Errorf("a row of -3e5: residual scale %g, want 1/8", rep.ResidualScale)
	}
}

// TestOverflowInsideLayers: the residual scale cannot mend what is not part of
// the stream; a bundle that gives NaN is worse than none.
func TestOverflowInsideLayers(t *testing.T) {
	grow := func(fixture, tensor string) string {
		return variant(t, fixture, func(all map[string]checkpoint.Tensor) {
			values(t, all, tensor, func(_ int, v float32) float32 { return v * 0x1p18 })
		}, nil)
	}
	for fixture, tensors := range map[string]map[string]string{
		"qwen2":  {"model.layers.1.mlp.up_proj.weight": "layers.1.mlp_up", "model.layers.2.self_attn.v_proj.weight": "layers.2.v"},
		"gemma3": {"model.layers.3.self_attn.o_proj.weight": "layers.3.attn_out"},
	} {
		for tensor, site := range tensors {
			src := grow(fixture, tensor)
			_, err := conversion.Convert(t.Context(), src, t.TempDir()+"/b", conversion.Options{})
			if err == nil || !strings.Contains(err.Error(), site+" reaches ") || !strings.Contains(err.Error(), "f32") {
				t.Errorf("%s: got %v, want one about %s", tensor, err, site)
			}
			convert(t, src, conversion.Options{Compute: "fp32"})
		}
	}
	src := grow("qwen2", "model.layers.1.mlp.down_proj.weight")
	if _, rep := convert(t, src, conversion.Options{}); rep.ResidualScale >= 1 {
		t.Errorf("a large residual stream: scale %g", rep.ResidualScale)
	}
}
