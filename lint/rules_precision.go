package lint

import (
	"math"

	"github.com/smelt-go/smelt/mil"
)

// Precision: the Neural Engine computes in fp16.

// smallestNormal is the smallest fp16 magnitude with full precision.
const smallestNormal = 0x1p-14

const typedExecution = "apple/coremltools: docs-guides/source/typed-execution.md"

var precisionRules = []Rule{
	{ID: "nan", Severity: Error, Source: "apple/coremltools#2353",
		Statement: "constants hold no NaN",
		chunk: constants(func(k *constant) (bool, string) {
			return k.nan > 0, "the constant holds NaN (a damaged checkpoint, or a scale of zero?)"
		})},
	{ID: "infinity", Severity: Warning, Source: "apple/coremltools#2669, john-rocky/CoreML-LLM: docs/SESSION_2026_04_25_MASK_VALUE.md",
		Statement: "constants hold no infinities: masks use -1e4, which composes",
		chunk: constants(func(k *constant) (bool, string) {
			switch {
			case k.posInf > 0:
				return true, "the constant holds +infinity (an overflow when it was cast?)"
			case k.negInf > 0:
				return true, "the constant holds -infinity: two such masks, or one times zero, give NaN (use -1e4)"
			}
			return false, ""
		})},
	{ID: "fp16-limit", Severity: Warning, Source: "apple/coremltools#2669",
		Statement: "no constant sits at the end of fp16",
		chunk: constants(func(k *constant) (bool, string) {
			switch {
			case k.saturated > 0:
				return true, "the constant holds ±65504, the end of fp16: a clipped value, or a mask that overflows when anything is added (scale the tensor, or use -1e4 in a mask)"
			case k.beyond > 0:
				return true, "an fp32 constant holds values beyond ±65504, which fp16 cannot hold (scale it, if the model is to run on the Neural Engine)"
			}
			return false, ""
		})},
	{ID: "mask-value", Severity: Error, Source: "apple/coremltools#2669, john-rocky/CoreML-LLM: docs/SESSION_2026_04_25_MASK_VALUE.md",
		Statement: "the contract's mask value is negative, finite and inside fp16",
		whole: func(r *reporter, s *subject) {
			if s.contract == nil {
				return
			}
			if b := s.contract.Mask.Blocked; !(b < 0 && b > -maxHalf) {
				r.addAt(place{value: "mask.blocked"}, "the contract masks with %g, which fp16 cannot add to a score (use -1e4)", b)
			}
		}},
	{ID: "epsilon-zero", Severity: Warning, Source: "apple/coremltools: converters/mil/mil/ops/defs/iOS15/elementwise_unary.py, john-rocky/CoreML-LLM: docs/PROBE_GEMMA4_VISION_ANE.md",
		Statement: "epsilons of rsqrt, log, inverse and norms are not zero: the default of 1e-12 is, in fp16",
		op:        epsilonZero},
	{ID: "epsilon-subnormal", Severity: Info, Source: "john-rocky/CoreML-LLM: docs/PROBE_GEMMA4_VISION_ANE.md",
		Statement: "epsilons in fp16 are at least 6.1e-5: the Neural Engine flushes smaller ones",
		op:        epsilonSubnormal},
	{ID: "fp32-ops", Severity: Warning, Source: typedExecution,
		Statement: "operations are fp16: others do not run on the Neural Engine",
		op: func(r *reporter, f *function, o *mil.Op) {
			if t, ok := outTensor(o); ok && computes(o) && o.Kind != "cast" && t.DType == mil.Float32 {
				r.addOp(o, "", "the operation computes in fp32, which the Neural Engine does not (convert with compute fp16; scale what overflows)")
			}
		}},
	{ID: "casts", Severity: Info, Source: typedExecution,
		Statement: "inputs and outputs are fp16, so that no cast is needed",
		op: func(r *reporter, f *function, o *mil.Op) {
			t, ok := outTensor(o)
			x, ok2 := tensor(o, "x")
			if ok && ok2 && o.Kind == "cast" && t.DType.IsFloat() && x.DType.IsFloat() {
				r.addOp(o, "", "a cast between fp16 and fp32 runs at every call (declare inputs and outputs fp16)")
			}
		}},
}

// constants checks the result of every scan.
func constants(bad func(*constant) (bool, string)) func(*reporter, *chunk) {
	return func(r *reporter, c *chunk) {
		for _, k := range c.constants {
			if yes, msg := bad(k); yes {
				r.addAt(k.at, "%s", msg)
			}
		}
	}
}

// epsilonOf returns the epsilon of an fp16 operation that has one.
func epsilonOf(o *mil.Op) (eps float64, dtype mil.DType, ok bool) {
	x, isTensor := tensor(o, "x")
	e, has := tensor(o, "epsilon")
	if !isTensor || !has || x.DType != mil.Float16 {
		return 0, 0, false
	}
	eps, ok = floatParam(o, "epsilon")
	return eps, e.DType, ok
}

func epsilonZero(r *reporter, f *function, o *mil.Op) {
	eps, _, ok := epsilonOf(o)
	if !ok {
		// Before CoreML7 the default takes the type of x, where it vanishes.
		x, isTensor := tensor(o, "x")
		if o.In("epsilon") != nil || !isTensor || x.DType != mil.Float16 || o.Kind != "rsqrt" && o.Kind != "log" {
			return
		}
		r.addOp(o, "epsilon", "the default epsilon is zero in fp16, so a zero gives an infinity (bind an epsilon of 6.1e-5 or more)")
		return
	}
	if eps == 0 {
		r.addOp(o, "epsilon", "epsilon is zero in fp16, so a zero gives an infinity (bind 6.1e-5 or more, or use layer_norm)")
	}
}

func epsilonSubnormal(r *reporter, f *function, o *mil.Op) {
	eps, d, ok := epsilonOf(o)
	if ok && d == mil.Float16 && eps != 0 && math.Abs(eps) < smallestNormal {
		r.addOp(o, "epsilon", "an epsilon below 6.1e-5 is subnormal in fp16 and may count as zero: a row of zeros then gives NaN (harmless where rows are never zero)")
	}
}
