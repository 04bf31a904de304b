package lint

import (
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// States: KV caches that Core ML keeps between calls.

const (
	maxStates    = 2  // state inputs a chunk
	stateAlign   = 32 // entries of a state's last axis
	maxStateRows = 32 // tokens in one slice_update
)

var stateRules = []Rule{
	{ID: "state-align", Severity: Warning, Source: "apple/coremltools#2631",
		Statement: "the last axis of a state is a multiple of 32",
		function: func(r *reporter, f *function) {
			for _, v := range f.states() {
				if t, _ := v.Tensor(); t.Rank() > 0 && t.Shape[t.Rank()-1]%stateAlign != 0 {
					r.addValue(v.Name, "the last axis has %d entries, no multiple of %d: models with such states were refused by the Neural Engine (pad the axis, or keep the cache in tensors)", t.Shape[t.Rank()-1], stateAlign)
				}
			}
		}},
	{ID: "state-count", Severity: Warning, Source: "john-rocky/CoreML-LLM: docs/MLSTATE_PATTERN.md",
		Statement: "a chunk has at most 2 states",
		function: func(r *reporter, f *function) {
			if n := len(f.states()); n > maxStates {
				r.add("the function has %d states; with 3, loading failed with code 0x1d (stack caches of one shape into one state)", n)
			}
		}},
	{ID: "state-functions", Severity: Info, Source: "john-rocky/CoreML-LLM: docs/MLSTATE_MULTIMODAL_PROBE.md",
		Statement: "on an iPhone, states and functions of several tokens live in separate packages",
		chunk: func(r *reporter, c *chunk) {
			if len(c.functions) > 1 && c.stateful() {
				r.add("%d functions share states; on an iPhone every such form with more than one token a call failed to compile in one project, while another ships it (for iPhones keep the cache in tensors, or try on the device early)", len(c.functions))
			}
		}},
	{ID: "state-write-rows", Severity: Info, Source: "Anemll/Anemll#27",
		Statement: "slice_update writes at most 32 rows of a state at once",
		op:        stateWriteRows},
	{ID: "state-shift", Severity: Warning, Source: "john-rocky/CoreML-LLM: docs/DECODE_STATE_LAYOUTS.md",
		Statement: "a state is not shifted by slice and concat: write a ring under a mask",
		op:        stateShift},
	{ID: "state-4bit", Severity: Warning, Source: "apple/coremltools#2716",
		Statement: "weights of 4 bits and states are not in one package",
		chunk: func(r *reporter, c *chunk) {
			if c.stateful() && slices.ContainsFunc(c.compressed(), func(o *mil.Op) bool { return paletteBits(o) == 4 }) {
				r.add("4-bit palettes beside states: such packages crashed on the Neural Engine after 100 to 200 predictions (try a long run on the device, or keep the cache in tensors)")
			}
		}},
}

// stateWriteRows finds long updates on their way into a state. The rows are
// the last axis but one.
func stateWriteRows(r *reporter, f *function, o *mil.Op) {
	if o.Kind != "slice_update" {
		return
	}
	if !slices.ContainsFunc(f.uses[o.Out()], func(u *mil.Op) bool { return u.Kind == "write_state" }) {
		return
	}
	if t, ok := tensor(o, "update"); ok && axisSize(t, -2) > maxStateRows {
		r.addOp(o, "update", "%d rows are written at once; more than %d was suspected of failures on the Neural Engine (prefill in shorter steps there)", axisSize(t, -2), maxStateRows)
	}
}

func stateShift(r *reporter, f *function, o *mil.Op) {
	data := o.In("data")
	if o.Kind != "write_state" || data == nil || data.Op == nil || data.Op.Kind != "concat" {
		return
	}
	for _, v := range data.Op.Ins("values") {
		if v.Op == nil || v.Op.Kind != "slice_by_index" && v.Op.Kind != "slice_by_size" {
			continue
		}
		if x := v.Op.In("x"); x != nil && x.Op != nil && x.Op.Kind == "read_state" {
			r.addOp(o, "data", "the state is shifted by slice and concat, which failed with code -14 beside a tied head (write into a ring instead)")
		}
	}
}
