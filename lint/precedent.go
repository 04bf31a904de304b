package lint

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// A Precedent is an approach that somebody has tried and measured. A new one
// is a row of the table; only a new Trait needs code.
type Precedent struct {
	ID       string
	Trait    Trait
	Approach string // what was tried, in one line
	Measured string // what came out, with the figure
	Source   string
}

// Trait is something about a chunk that a precedent can be recognised by.
type Trait string

// The traits that traits finds.
const (
	LowBitPalette   Trait = "palettes of 1 to 3 bits"
	Int8Table       Trait = "palettes with 8-bit entries"
	SparsePalette   Trait = "sparse palettes"
	QuantizedValues Trait = "activations quantized at run time"
	BlockPalette    Trait = "palettes a block of a row"
	DeepState       Trait = "states in a program of 20 layers or more"
)

// The traits that show in the contract of a bundle.
const (
	OneProgram    Trait = "the whole of 20 layers or more in one program"
	TwoPrograms   Trait = "two programs of 10 layers or more each"
	ThickFirst    Trait = "per-layer embeddings and more than half of the layers that own keys in the first of three programs or more, all up to the last owner"
	StatesAndRows Trait = "states beside functions of several tokens"
	ManyPrefills  Trait = "three lengths of prefill or more"
	ArgmaxAndTopK Trait = "argmax and top-k in one head beyond 65,535 tokens"
)

// The traits that show in a recipe alone.
const (
	LowBitIntegers Trait = "integers of 2 or 3 bits"
	Int4Table      Trait = "4-bit embedding tables"
	Pruned         Trait = "2:4 pruning"
)

var precedents = []Precedent{
	{ID: "low-bit-palette", Trait: LowBitPalette,
		Approach: "palettes of 2 and 3 bits without training",
		Measured: "Gemma 4 E2B produced gibberish at 2 and at 3 bits (546 and 818 MB)",
		Source:   "john-rocky/CoreML-LLM: docs/REJECTED_APPROACHES.md"},
	{ID: "low-bit-integers", Trait: LowBitIntegers,
		Approach: "weights of 2 and 3 bits without training",
		Measured: "Gemma 4 E2B produced gibberish at 2 and at 3 bits (546 and 818 MB)",
		Source:   "john-rocky/CoreML-LLM: docs/REJECTED_APPROACHES.md"},
	{ID: "int8-table", Trait: Int8Table,
		Approach: "4-bit palettes with 8-bit table entries",
		Measured: "cosine 0.829 against the fp16 table, 3.4 % slower, not one byte smaller",
		Source:   "john-rocky/CoreML-LLM: docs/SESSION_2026_04_26_ROUND8_INT8_LUT_PROBE.md"},
	{ID: "sparse-palette", Trait: SparsePalette,
		Approach: "pruning 2 of 4 weights and a 4-bit palette",
		Measured: "cosine 0.449, 11 % slower, and 349.6 MB instead of 155.8",
		Source:   "john-rocky/CoreML-LLM: docs/SESSION_2026_04_27_ROUND8_JOINT_SPARSE_PROBE.md"},
	{ID: "pruned", Trait: Pruned,
		Approach: "leaving out 2 of every 4 weights without training",
		Measured: "with a 4-bit palette cosine 0.449 and 11 % slower",
		Source:   "john-rocky/CoreML-LLM: docs/SESSION_2026_04_27_ROUND8_JOINT_SPARSE_PROBE.md"},
	{ID: "quantized-activations", Trait: QuantizedValues,
		Approach: "8-bit activations",
		Measured: "no gain on a Mac, ANECCompile() failed on an iPhone; with 4-bit weights cosine 0.475",
		Source:   "john-rocky/CoreML-LLM: docs/EXPERIMENTS.md"},
	{ID: "int4-embeddings", Trait: Int4Table,
		Approach: "a per-layer embedding table of 4 bits",
		Measured: "rows of cosine 0.995 with groups of 32, but the most likely token of Gemma 4 E2B the same for 65.6 % of positions only",
		Source:   "john-rocky/CoreML-LLM: docs/REJECTED_APPROACHES.md"},
	{ID: "block-palette", Trait: BlockPalette,
		Approach: "palettes a block of a row",
		Measured: "refused by the Neural Engine",
		Source:   "john-rocky/CoreML-LLM: docs/TERNARY_BONSAI.md"},
	{ID: "one-stateful-program", Trait: DeepState,
		Approach: "the whole model with states in one program",
		Measured: "Gemma 4 E2B with 35 layers did not compile and took the compiler's daemon down on an iPhone; on a Mac 30.8 tokens/s",
		Source:   "john-rocky/CoreML-LLM: docs/CHUNK_CONSOLIDATION_BENCH.md"},
	{ID: "one-program", Trait: OneProgram,
		Approach: "topology 1: the whole model in one program",
		Measured: "Gemma 4 E2B did not compile for the Neural Engine of an iPhone 17 Pro; in 3 chunks it runs at 33.0 to 34.2 tokens/s",
		Source:   "john-rocky/CoreML-LLM: docs/CHUNK_CONSOLIDATION_BENCH.md"},
	{ID: "two-programs", Trait: TwoPrograms,
		Approach: "topology 2: two programs in place of four",
		Measured: "31.7 tokens/s on an iPhone 17 Pro, where 4 chunks give 31.6 and 3 give 33.0 to 34.2",
		Source:   "john-rocky/CoreML-LLM: docs/CHUNK_CONSOLIDATION_BENCH.md"},
	{ID: "thick-first-program", Trait: ThickFirst,
		Approach: "topology I: layers 0 to 15 with the per-layer embeddings in the first of three programs",
		Measured: "31.7 tokens/s on an iPhone 17 Pro, where cuts at 8 and 25 give 33.0 to 34.2",
		Source:   "john-rocky/CoreML-LLM: docs/REJECTED_APPROACHES.md"},
	{ID: "states-and-rows", Trait: StatesAndRows,
		Approach: "states in packages with functions of several tokens",
		Measured: "on an iPhone every variant of Gemma 4 failed (ANECCompile FAILED 11, or the daemon crashed); older toolchains failed with code -14",
		Source:   "john-rocky/CoreML-LLM: docs/MLSTATE_MULTIMODAL_PROBE.md"},
	{ID: "many-prefills", Trait: ManyPrefills,
		Approach: "several lengths of prefill in one package",
		Measured: "four resident lengths slowed the usual one down 2.2 times; a package of several functions loads about 3 times as long",
		Source:   "john-rocky/CoreML-LLM: docs/REJECTED_APPROACHES.md"},
	{ID: "argmax-and-topk", Trait: ArgmaxAndTopK,
		Approach: "argmax and top-k of one head",
		Measured: "with 262,144 tokens they disagreed in about 40 % of rows, by 196,608 = 3·65,536",
		Source:   "john-rocky/CoreML-LLM: docs/MTP_PATH_C_FINDINGS.md"},
}

// Precedents returns the table of approaches that have been tried.
func Precedents() []Precedent { return append([]Precedent(nil), precedents...) }

// precedentRules turns the table into rules.
func precedentRules() []Rule {
	var out []Rule
	for _, p := range precedents {
		if p.ofRecipe() {
			continue // packages do not show it
		}
		r := Rule{ID: "tried-" + p.ID, Severity: Warning, Source: p.Source,
			Statement: fmt.Sprintf("tried before: %s: %s", p.Approach, p.Measured)}
		if p.ofContract() {
			r.whole = func(r *reporter, s *subject) {
				if s.contract != nil && contractTraits(s.contract)[p.Trait] {
					r.addAt(place{chunk: s.chunks[0].name}, "the bundle has %s. Tried before, %s: %s (measure before you rely on it)", p.Trait, p.Approach, p.Measured)
				}
			}
			out = append(out, r)
			continue
		}
		r.chunk = func(r *reporter, c *chunk) {
			if at, ok := traits(c)[p.Trait]; ok {
				at.chunk = c.name
				r.addAt(at, "the chunk has %s. Tried before, %s: %s (measure before you rely on it)", p.Trait, p.Approach, p.Measured)
			}
		}
		out = append(out, r)
	}
	return out
}

// traits says what is notable about a chunk and where it is seen first.
func traits(c *chunk) map[Trait]place {
	found := map[Trait]place{}
	for _, f := range c.functions {
		for _, o := range f.ops {
			for _, t := range opTraits(o) {
				if _, ok := found[t]; !ok {
					found[t] = place{function: f.Name, kind: o.Kind, op: o.Name}
				}
			}
		}
	}
	if c.stateful() && c.depth() >= 20 {
		found[DeepState] = place{}
	}
	return found
}

func opTraits(o *mil.Op) []Trait {
	var out []Trait
	if b := paletteBits(o); b >= 1 && b <= 3 {
		out = append(out, LowBitPalette)
	}
	if lut, ok := tensor(o, "lut"); ok {
		v := o.In("lut")
		if lut.DType.IsInt() || v.Op != nil && v.Op.Kind == "constexpr_blockwise_shift_scale" {
			out = append(out, Int8Table)
		}
		if t, ok := tensor(o, "indices"); ok && lut.Rank() == t.Rank()+2 && t.Rank() > 1 && lut.Shape[1] > 1 && lut.Shape[1] < t.Shape[1] {
			out = append(out, BlockPalette)
		}
	}
	switch o.Kind {
	case "constexpr_lut_to_sparse":
		out = append(out, SparsePalette)
	case "quantize":
		if !isConstant(o.In("input")) {
			out = append(out, QuantizedValues)
		}
	}
	return out
}
