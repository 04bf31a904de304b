package lint

import "github.com/smelt-go/smelt/mil"

// Shapes: the Neural Engine is compiled for one shape.

// maxDim is the longest axis that the Neural Engine is reported to take.
const maxDim = 65536

var shapeRules = []Rule{
	{ID: "dynamic-shape", Severity: Warning, Source: "john-rocky/CoreML-LLM: docs/SPEED_8K.md, apple/coremltools#1909",
		Statement: "inputs have fixed shapes: with a range, a model leaves the Neural Engine",
		function:  dynamicInputs},
	{ID: "dynamic-state", Severity: Error, Source: "apple/coremltools#2537, #2548, #2500",
		Statement: "a function with states has inputs of fixed shapes only",
		function:  dynamicWithState},
	{ID: "unknown-dimension", Severity: Warning, Source: "john-rocky/CoreML-LLM: docs/CONVERSION.md",
		Statement: "every shape inside the program is known when it is compiled",
		op: func(r *reporter, f *function, o *mil.Op) {
			if t, ok := outTensor(o); ok && computes(o) && t.NumElements() == mil.Unknown {
				r.addOp(o, o.Out().Name, "a dimension is known at run time only, which keeps the operation off the Neural Engine (make one function a length)")
			}
		}},
	{ID: "rank-5", Severity: Warning, Source: "FluidInference/FluidAudio#679",
		Statement: "values have at most 4 axes: the Neural Engine's compiler is reported to fail on 5",
		op: func(r *reporter, f *function, o *mil.Op) {
			if t, ok := outTensor(o); ok && computes(o) && t.Rank() == 5 {
				r.addOp(o, o.Out().Name, "a value has 5 axes (join two of them with reshape)")
			}
		}},
	{ID: "long-axis", Severity: Info, Source: "maderix/ANE#26, john-rocky/CoreML-LLM: docs/SESSION_2026_04_28_LMSPLIT_FINALISE.md",
		Statement: "no axis of a projection is longer than 65,536",
		op:        longAxis},
}

func dynamicInputs(r *reporter, f *function) {
	described := map[string]bool{}
	for _, in := range f.chunk.features[f.Name].Inputs {
		switch {
		case len(in.Ranges) > 0:
			r.addValue(in.Name, "the input takes a range of shapes (fix the shape, or write a function a length)")
		case len(in.Shapes) > 1:
			r.addValue(in.Name, "the input takes %d shapes (with a layer norm in the graph that is reported to leave the Neural Engine; write a function a shape)", len(in.Shapes))
		default:
			continue
		}
		described[in.Name] = true
	}
	for _, v := range f.Inputs {
		if t, ok := v.Type.(mil.TensorType); ok && !described[v.Name] && t.NumElements() == mil.Unknown {
			r.addValue(v.Name, "the input has a dimension of unknown size (fix the shape)")
		}
	}
}

func dynamicWithState(r *reporter, f *function) {
	if len(f.states()) == 0 {
		return
	}
	flexible := map[string]bool{}
	for _, in := range f.chunk.features[f.Name].Inputs {
		flexible[in.Name] = len(in.Ranges) > 0 || len(in.Shapes) > 1
	}
	for _, v := range f.Inputs {
		if t, ok := v.Type.(mil.TensorType); ok && (flexible[v.Name] || t.NumElements() == mil.Unknown) {
			r.addValue(v.Name, "the input has no fixed shape, beside a state: building the execution plan aborts (fix the shape)")
		}
	}
}

func longAxis(r *reporter, f *function, o *mil.Op) {
	if o.Kind != "linear" && o.Kind != "conv" && o.Kind != "matmul" {
		return
	}
	longest := 0
	for _, p := range []string{"x", "weight", "y"} {
		if t, ok := tensor(o, p); ok {
			for _, d := range t.Shape {
				longest = max(longest, d)
			}
		}
	}
	if longest > maxDim {
		r.addOp(o, "", "an axis has %d entries, more than the %d that the Neural Engine is reported to take: this operation may run elsewhere (look where it runs before splitting it: a head of 262,144 ran well on an iPhone, and 4.6 %% slower when split 16 ways)", longest, maxDim)
	}
}
