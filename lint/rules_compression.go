package lint

import "github.com/smelt-go/smelt/mil"

// Compression: forms of compressed weights that one processor takes and
// another does not. All of these are constexpr operations: they are evaluated
// when a model is loaded and are no work of the graph.

var compressionRules = []Rule{
	{ID: "block-int4", Severity: Warning, Source: "apple/coremltools#2510, apple/coremltools: docs-guides/source/opt-overview.md",
		Statement: "4-bit weights for the Neural Engine are palettes: scales a block along the input are for the GPU",
		op: func(r *reporter, f *function, o *mil.Op) {
			if d, n := blocks(o); n > 1 && d.Bits() == 4 {
				r.addOp(o, "", "4-bit weights have several scales along an output row, which the Neural Engine does not support (palettize for it; keep blocks for the GPU of a Mac)")
			}
		}},
	{ID: "block-int8", Severity: Warning, Source: "apple/coreai-models#279, apple/coremltools#2510",
		Statement: "8-bit weights for the Neural Engine have one scale an output channel or tensor",
		op: func(r *reporter, f *function, o *mil.Op) {
			if d, n := blocks(o); n > 1 && d.Bits() == 8 {
				r.addOp(o, "", "8-bit weights have several scales along an output row, which gave silently wrong results on the Neural Engine (cosine 0.367; quantize a channel)")
			}
		}},
	{ID: "channel-scale-palette", Severity: Warning, Source: "apple/coremltools#2688, apple/coremltools#2777",
		Statement: "palettes have no scale a channel: macOS 26 fails to load those on the Neural Engine",
		op:        channelScalePalette},
}

// blocks returns the element type and the most scales that one output row of
// quantized weights has.
func blocks(o *mil.Op) (mil.DType, int) {
	data, scale := "data", "scale"
	switch o.Kind {
	case "constexpr_blockwise_shift_scale":
	case "constexpr_sparse_blockwise_shift_scale":
		data = "nonzero_data"
	default:
		return mil.InvalidDType, 0
	}
	d, ok := tensor(o, data)
	s, ok2 := tensor(o, scale)
	if !ok || !ok2 || s.Rank() < 2 {
		return mil.InvalidDType, 0
	}
	n := 1
	for _, k := range s.Shape[1:] {
		n *= k
	}
	return d.DType, n
}

func channelScalePalette(r *reporter, f *function, o *mil.Op) {
	switch o.Kind {
	case "constexpr_blockwise_shift_scale":
		if d := o.In("data"); d != nil && d.Op != nil && d.Op.Kind == "constexpr_lut_to_dense" {
			r.addOp(o, "", "a palette is scaled a channel, which fails to load on the Neural Engine of macOS 26 (palettize without a scale, in groups of 8 to 16 channels)")
		}
	case "constexpr_lut_to_dense":
		indices, ok := tensor(o, "indices")
		lut, ok2 := tensor(o, "lut")
		if ok && ok2 && lut.Rank() == indices.Rank()+2 && indices.Rank() > 1 && lut.Shape[1] > 1 && lut.Shape[1] == indices.Shape[1] {
			r.addOp(o, "", "every input channel has a table of its own: a scale a channel that was moved into the tables (palettize without it, in groups of output channels)")
		}
	}
}

// paletteBits is the width of the indices of a palette, 0 for anything else.
func paletteBits(o *mil.Op) int {
	switch o.Kind {
	case "constexpr_lut_to_dense":
		t, ok := tensor(o, "indices")
		lut, ok2 := tensor(o, "lut")
		switch {
		case !ok || !ok2:
			return 0
		case t.Rank() == 1 && lut.Rank() == 1 && o.In("shape") != nil:
			// The older form packs indices into bytes; the table tells.
			bits := 0
			for n := lut.Shape[0]; n > 1; n >>= 1 {
				bits++
			}
			return bits
		}
		return t.DType.Bits()
	case "constexpr_lut_to_sparse":
		if t, ok := tensor(o, "indices_nonzero_data"); ok {
			return t.DType.Bits()
		}
	}
	return 0
}
