package lint

import (
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// Placement: operations that are reported to run on the CPU, each with a trip
// there and back.

// cpuKinds are operations that no form of takes the Neural Engine.
var cpuKinds = []string{
	"argsort", "gather", "gather_along_axis", "non_zero", "reduce_argmax", "reduce_argmin",
	"scatter", "scatter_along_axis", "scatter_nd", "topk", "one_hot", "range_1d", "cond", "while_loop",
}

var placementRules = []Rule{
	{ID: "gather-nd", Severity: Warning, Source: "john-rocky/CoreML-LLM: docs/PROBE_GEMMA4_VISION_ANE.md",
		Statement: "gather_nd has constant indices: with computed ones it was seen to give zeros on the Neural Engine",
		op: func(r *reporter, f *function, o *mil.Op) {
			if o.Kind == "gather_nd" && !isConstant(o.In("indices")) {
				r.addOp(o, "indices", "gather_nd with computed indices silently gave zeros on the Neural Engine (use gather, or multiply by a one-hot matrix)")
			}
		}},
	{ID: "cpu-op", Severity: Info, Source: "john-rocky/CoreML-LLM: docs/EXPERIMENTS.md",
		Statement: "gathers, sorts and argmax stay at the ends of the graph",
		op: func(r *reporter, f *function, o *mil.Op) {
			if slices.Contains(cpuKinds, o.Kind) {
				r.addOp(o, "", "%s is likely to run on the CPU (a few at the ends of a graph cost little; inside it, let the host compute and pass the result in)", o.Kind)
			}
		}},
	{ID: "int-op", Severity: Info, Source: "john-rocky/CoreML-LLM: docs/CONVERSION.md",
		Statement: "the graph computes with floats only",
		op: func(r *reporter, f *function, o *mil.Op) {
			t, ok := outTensor(o)
			if ok && computes(o) && !slices.Contains(cpuKinds, o.Kind) && (t.DType.IsInt() || t.DType == mil.Bool) {
				r.addOp(o, "", "integer and bool arithmetic runs on the CPU (compute positions and masks on the host)")
			}
		}},
	{ID: "depthwise-conv", Severity: Info, Source: "john-rocky/CoreML-LLM: docs/LFM2_CONVERSION_FINDINGS.md",
		Statement: "convolutions are not depthwise",
		op: func(r *reporter, f *function, o *mil.Op) {
			if x, ok := tensor(o, "x"); ok && o.Kind == "conv" && intParam(o, "groups", 1) > 1 && intParam(o, "groups", 1) == axisSize(x, 1) {
				r.addOp(o, "", "a convolution with a group a channel ran on the CPU (write it as shifts and products, and compare)")
			}
		}},
	{ID: "sdpa", Severity: Info, Source: "apple/coremltools#2650, apple/coremltools#2864",
		Statement: "attention is matmul, add, softmax, matmul",
		op: func(r *reporter, f *function, o *mil.Op) {
			if o.Kind == "scaled_dot_product_attention" {
				r.addOp(o, "", "scaled_dot_product_attention scales by 1/√d only and was wrong on the GPU from batch 10 on (write it out if the model has another scale)")
			}
		}},
}
