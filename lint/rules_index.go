package lint

import (
	"github.com/smelt-go/smelt/mil"
)

// Indices: narrow integers wrap without a word.

const wrapSource = "john-rocky/CoreML-LLM: docs/MTP_PATH_C_FINDINGS.md, apple/coremltools: converters/mil/mil/ops/defs/iOS17"

var indexRules = []Rule{
	{ID: "index-width", Severity: Error, Source: wrapSource,
		Statement: "indices of topk, argmax and argsort can number the whole axis: uint16 ends at 65,535",
		op:        narrowResult},
	{ID: "index-operand", Severity: Warning, Source: "apple/coremltools#2222, apple/coremltools#2626",
		Statement: "indices of gather and scatter that are computed can number the whole axis",
		op:        narrowOperand},
	{ID: "topk-and-argmax", Severity: Info, Source: "john-rocky/CoreML-LLM: conversion/build_eagle3_chunks.py",
		Statement: "topk and argmax of one tensor are not both used: on the Neural Engine they were seen to disagree",
		op: func(r *reporter, f *function, o *mil.Op) {
			if o.Kind != "topk" || o.In("x") == nil {
				return
			}
			for _, u := range f.uses[o.In("x")] {
				if u.Kind == "reduce_argmax" {
					r.addOp(o, "", "topk and reduce_argmax read one tensor and may name different winners (take both from topk)")
				}
			}
		}},
}

// numbers is how many entries indices of type d can tell apart.
func numbers(d mil.DType) int {
	bits := d.Bits()
	if d.IsSigned() {
		bits--
	}
	if !d.IsInt() || bits > 31 {
		return 1 << 31
	}
	return 1 << bits
}

// narrowResult looks at operations that yield indices.
func narrowResult(r *reporter, f *function, o *mil.Op) {
	at := 0
	switch o.Kind {
	case "topk":
		at = 1
	case "reduce_argmax", "reduce_argmin", "argsort":
	default:
		return
	}
	x, ok := tensor(o, "x")
	if !ok || at >= len(o.Outputs) {
		return
	}
	t, ok := o.Outputs[at].Tensor()
	if n := axisSize(x, intParam(o, "axis", -1)); ok && n > numbers(t.DType) {
		r.addOp(o, o.Outputs[at].Name, "%v indices cannot number the %d entries of the axis: they wrap to wrong tokens (ask for int32)", t.DType, n)
	}
	for _, u := range f.uses[o.Outputs[at]] {
		if u.Kind != "cast" {
			continue
		}
		if c, ok := outTensor(u); ok && c.DType.IsInt() {
			if n := axisSize(x, intParam(o, "axis", -1)); n > numbers(c.DType) {
				r.addOp(u, u.Out().Name, "indices into an axis of %d entries are cast to %v and wrap (keep int32)", n, c.DType)
			}
		}
	}
}

// narrowOperand looks at operations that follow indices. Constants are what
// they are, and validated elsewhere.
func narrowOperand(r *reporter, f *function, o *mil.Op) {
	data := "x"
	switch o.Kind {
	case "gather", "gather_along_axis":
	case "scatter", "scatter_along_axis":
		data = "data"
	default:
		return
	}
	x, ok := tensor(o, data)
	i, ok2 := tensor(o, "indices")
	if !ok || !ok2 || isConstant(o.In("indices")) {
		return
	}
	if n := axisSize(x, intParam(o, "axis", 0)); n > numbers(i.DType) {
		r.addOp(o, "indices", "computed %v indices cannot reach all %d entries of the axis (use int32)", i.DType, n)
	}
}
