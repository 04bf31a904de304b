package conversion_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/quant"
)

func recipe(t *testing.T, name string) *quant.Recipe {
	t.Helper()
	r, err := quant.Preset(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.KeepIndivisible = true
	return r
}

// TestCompressedCut: a limit of bytes counts weights as they are stored, and the
// contract says by which recipe.
func TestCompressedCut(t *testing.T) {
	for _, name := range []string{"gemma3", "gemma4-e2b", "llama-tied"} {
		src := fixture(t, name)
		_, plain := convert(t, src, conversion.Options{Chunks: 1})
		limit := plain.Chunks[0].Weights * 2 / 5
		if _, err := conversion.Plan(t.Context(), src, conversion.Options{MaxChunkBytes: limit}, 0); err == nil {
			_, many := convert(t, src, conversion.Options{MaxChunkBytes: limit})
			if len(many.Chunks) < 2 {
				t.Errorf("%s: %d chunks of at most %d bytes uncompressed", name, len(many.Chunks), limit)
			}
		}
		_, r := convert(t, src, conversion.Options{MaxChunkBytes: limit, Quantize: recipe(t, "coreml-lut4")})
		if len(r.Chunks) != 1 || r.Chunks[0].Weights > limit {
			t.Errorf("%s: %d chunks, the first of %d bytes, want one of at most %d", name, len(r.Chunks), r.Chunks[0].Weights, limit)
		}
		if !bytes.Contains(r.Contract().Quantization, []byte(`"palette"`)) {
			t.Errorf("%s: the contract says quantization %s", name, r.Contract().Quantization)
		}
		_, w8 := convert(t, src, conversion.Options{Chunks: 1, Quantize: recipe(t, "coreml-w8")})
		_, int4 := convert(t, src, conversion.Options{Chunks: 1, Quantize: recipe(t, "coreml-int4-b32")})
		if a, b := w8.Contract().Source.Conversion, int4.Contract().Source.Conversion; a == b || a == plain.Contract().Source.Conversion {
			t.Errorf("%s: conversions by different recipes are both %s", name, a)
		}
	}
}

// TestCompressedRefused: what a format cannot hold is said before anything is
// written, for all weights at once.
func TestCompressedRefused(t *testing.T) {
	for format, want := range map[quant.Format]string{
		{Codec: "palette", Bits: 5}:                                       "palettes have no 5-bit codes",
		{Codec: "palette", Bits: 4, GroupSize: 7}:                         "groups of 7 rows do not divide",
		{Codec: "palette", Bits: 4, Vector: 3}:                            "vectors of 3 rows do not divide",
		{Codec: "palette", Bits: 4, Vector: 2, Sparsity: 0.5}:             "go with vector 1 only",
		{Codec: "palette", Bits: 4, Table: "int4"}:                        "int4 tables cannot be loaded",
		{Codec: "sparse", Pattern: "4:2"}:                                 "want N:M",
		{Codec: "sparse", Pattern: "1:7"}:                                 "which pattern 1:7 does not divide",
		{Codec: "sparse"}:                                                 "needs sparsity or pattern",
		{Codec: "linear", Bits: 4, Vector: 2}:                             "has no vector",
		{Codec: "linear", Bits: 3, Granularity: "channel"}:                "linear has no 3-bit codes",
		{Codec: "linear", Bits: 8, Granularity: "channel", Sparsity: 1}:   "want a part below 1",
		{Codec: "palette", Bits: 2, Tables: "uniform", Vector: 2}:         "uniform tables have no vectors",
		{Codec: "palette", Bits: 2, Tables: "unique", Table: "int8"}:      "cannot be int8",
		{Codec: "palette", Bits: 4, ChannelScale: true, Pattern: "1:2"}:   "exclude channel_scale",
		{Codec: "linear", Bits: 4, Granularity: "block", GroupSize: 1000}: "blocks of 1000 do not divide",
		{Codec: "sparse", Sparsity: 0.5, Pattern: "1:2"}:                  "exclude each other",
		{Codec: "palette", Bits: 4, Granularity: "channel"}:               "has no granularity",
	} {
		_, err := conversion.Plan(t.Context(), fixture(t, "gemma3"), conversion.Options{
			Quantize: &quant.Recipe{Target: quant.TargetCoreML, Default: format}}, 0)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", format, err, want)
		}
	}
}
