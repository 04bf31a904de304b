package lint

import (
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// Validity: what Core ML or its tools refuse, crash on or misread, whatever
// the processor.

const (
	milProto   = "apple/coremltools: mlmodel/format/MIL.proto"
	milProgram = "apple/coremltools: converters/mil/mil/program.py"
	milLoad    = "apple/coremltools: converters/mil/backend/mil/load.py"
)

var validityRules = []Rule{
	{ID: "program", Severity: Error, Source: milProto,
		Statement: "the program obeys the op definitions: parameters, element types, shapes, definitions before uses",
		chunk:     verified(mil.Error, anyRule)},
	{ID: "rank", Severity: Error, Source: milProgram,
		Statement: "values have at most 5 axes, except constants that only feed constexpr operations",
		chunk:     verified(mil.Error, only("rank"))},
	{ID: "state-type", Severity: Error, Source: "apple/coremltools: docs-guides/source/stateful-models.md",
		Statement: "a state is fp16, of fixed shape, and has one type in all functions",
		chunk:     stateTypes},
	{ID: "reserved-name", Severity: Error, Source: "apple/coremltools: converters/mil/mil/passes/defs/preprocess.py",
		Statement: "nothing is named like a word of the MIL grammar",
		function:  reservedNames},
	{ID: "output-alias", Severity: Error, Source: milLoad,
		Statement: "an output is computed: not an input, a state's contents or a constant itself",
		function:  outputAlias},
	{ID: "output-feeds-state", Severity: Error, Source: "apple/coremltools#2713",
		Statement: "an output is not also what is written into a state: Core ML crashes when it loads that",
		function:  outputFeedsState},
	{ID: "emission", Severity: Warning, Source: "microsoft/onnxruntime#28598, " + milLoad,
		Statement: "defaults are written out, names are plain, operands share one type: parsers differ in what they forgive",
		chunk:     verified(mil.Warning, anyRule)},
	{ID: "empty-program", Severity: Error, Source: milProto,
		Statement: "a function computes something",
		function: func(r *reporter, f *function) {
			if !slices.ContainsFunc(f.ops, computes) {
				r.add("the function has no operation but constants (was the graph folded away?)")
			}
		}},
}

// elsewhere are rules of the verifier that other rows of the table cover.
var elsewhere = []string{"rank", "state", "index-width"}

func anyRule(f mil.Finding) bool {
	if f.Rule == "name" && (mil.Reserved(f.Value) || mil.Reserved(f.Op)) {
		return false
	}
	if f.Rule == "output" && f.Severity == mil.Warning {
		return false // output-alias
	}
	return !slices.Contains(elsewhere, f.Rule)
}

func only(rule string) func(mil.Finding) bool {
	return func(f mil.Finding) bool { return f.Rule == rule }
}

// verified passes findings of the verifier on.
func verified(s mil.Severity, take func(mil.Finding) bool) func(*reporter, *chunk) {
	return func(r *reporter, c *chunk) {
		for _, f := range c.verified {
			if f.Severity == s && take(f) {
				r.addAt(place{chunk: c.name, function: f.Function, kind: f.Kind, op: f.Op, value: f.Value},
					"%s [%s]", f.Msg, f.Rule)
			}
		}
	}
}

func stateTypes(r *reporter, c *chunk) {
	for _, s := range []mil.Severity{mil.Error, mil.Warning} {
		verified(s, only("state"))(r, c)
	}
}

func reservedNames(r *reporter, f *function) {
	bad := func(name string, add func(string, string, ...any)) {
		if mil.Reserved(name) {
			add(name, "the name %q is a word of the MIL grammar (rename it to %q)", name, mil.SanitizeName(name))
		}
	}
	for _, v := range f.Inputs {
		bad(v.Name, r.addValue)
	}
	for _, o := range f.ops {
		at := func(value, format string, args ...any) { r.addOp(o, value, format, args...) }
		named := false
		for _, v := range o.Outputs {
			bad(v.Name, at)
			named = named || v.Name == o.Name
		}
		if !named {
			bad(o.Name, at)
		}
	}
}

func outputAlias(r *reporter, f *function) {
	for _, v := range f.Body.Outputs {
		what := ""
		switch {
		case v.Op == nil:
			what = "an input"
			if _, ok := v.Type.(mil.StateType); ok {
				what = "a state"
			}
		case isConstant(v):
			what = "a constant"
		case v.Op.Kind == "read_state":
			what = "a state's contents"
		default:
			continue
		}
		r.addValue(v.Name, "the output is %s (copy it with identity)", what)
	}
}

// feedDepth is how far up from a state write an output may not be: movement
// between the two is likely to be folded away.
const feedDepth = 4

func outputFeedsState(r *reporter, f *function) {
	outputs := map[*mil.Value]bool{}
	for _, v := range f.Body.Outputs {
		outputs[v] = true
	}
	var feeds func(v *mil.Value, depth int) *mil.Value
	feeds = func(v *mil.Value, depth int) *mil.Value {
		switch {
		case outputs[v]:
			return v
		case v.Op == nil || depth == 0:
			return nil
		}
		for _, a := range v.Op.Args {
			for _, in := range a.Values {
				if hit := feeds(in, depth-1); hit != nil {
					return hit
				}
			}
		}
		return nil
	}
	for _, o := range f.ops {
		data := o.In("data")
		if o.Kind != "write_state" || data == nil {
			continue
		}
		if v := feeds(data, feedDepth); v != nil {
			r.addOp(o, v.Name, "the output %s is also what goes into a state, up to %d operations on (return something computed apart from it)", v.Name, feedDepth)
		}
	}
}
