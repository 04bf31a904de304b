package lint

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/quant"
)

// An Advice says that a conversion asks for what somebody has tried and
// rejected, and what they measured. It forbids nothing.
type Advice struct {
	ID       string `json:"id"` // Precedent.ID
	Trait    Trait  `json:"trait"`
	Approach string `json:"approach"`
	Measured string `json:"measured"`
	Source   string `json:"source"`
}

// String is one line for people.
func (w Advice) String() string {
	return fmt.Sprintf("%s: tried before: %s: %s (%s)", w.Trait, w.Approach, w.Measured, w.Source)
}

// Asked looks up what a conversion asks for, before anything is measured: the
// contract that was or will be written, and the recipe, nil for none.
func Asked(c *chunking.Contract, r *quant.Recipe) []Advice {
	traits := recipeTraits(r)
	for t, ok := range contractTraits(c) {
		traits[t] = ok
	}
	out := []Advice{}
	for _, p := range precedents {
		if traits[p.Trait] {
			out = append(out, Advice(p))
		}
	}
	return out
}

// ofContract reports whether a precedent shows in the contract.
func (p *Precedent) ofContract() bool {
	return slices.Contains([]Trait{OneProgram, TwoPrograms, ThickFirst, StatesAndRows, ManyPrefills, ArgmaxAndTopK}, p.Trait)
}

// ofRecipe reports whether a precedent shows in a recipe alone.
func (p *Precedent) ofRecipe() bool {
	return slices.Contains([]Trait{LowBitIntegers, Int4Table, Pruned}, p.Trait)
}

// deepFrom is the number of layers from which programs are known to fail.
const deepFrom = 20

// contractTraits are those of cuts, functions and heads.
func contractTraits(c *chunking.Contract) map[Trait]bool {
	found := map[Trait]bool{}
	if c == nil || len(c.Chunks) == 0 {
		return found
	}
	layers := c.Model.Layers
	state := c.KV == chunking.KVState
	switch len(c.Chunks) {
	case 1:
		found[OneProgram] = layers >= deepFrom
		found[DeepState] = layers >= deepFrom && state
	case 2:
		found[TwoPrograms] = layers >= deepFrom && min(c.Chunks[0].Last, layers-c.Chunks[0].Last) >= deepFrom/2
	default:
		own := owners(c)
		found[ThickFirst] = c.PerLayer != nil && layers >= deepFrom && own < layers && c.Chunks[0].Last >= own
	}
	prefills, several := 0, false
	for _, f := range c.Chunks[0].Functions {
		if f.Kind == chunking.Prefill {
			prefills++
		}
		several = several || f.T > 1
	}
	found[ManyPrefills] = prefills >= 3
	found[StatesAndRows] = state && several && layers >= deepFrom
	last := c.Chunks[len(c.Chunks)-1].Functions[0]
	found[ArgmaxAndTopK] = c.Model.Vocab > 1<<16 && chunking.Find(last.Outputs, models.TokenID, "") != nil && chunking.Find(last.Outputs, models.TopIDs, "") != nil
	return found
}

// owners is the number of layers that have keys and values of their own.
func owners(c *chunking.Contract) int {
	n := c.Model.Layers
	if c.Model.KVSource == nil {
		return n
	}
	own := 0
	for l, s := range c.Model.KVSource {
		if l == s {
			own++
		}
	}
	return own
}

// asked is what matters of a format here. Recipes are read as the JSON that
// users write, whatever settings codecs have besides.
type asked struct {
	Codec       string   `json:"codec"`
	Bits        int      `json:"bits"`
	Table       string   `json:"table"`
	Sparsity    float64  `json:"sparsity"`
	Pattern     string   `json:"pattern"`
	Activations any      `json:"activations"`
	Class       []string `json:"class"`
	Keep        bool     `json:"keep"`
}

// recipeTraits are those of the formats that a recipe names.
func recipeTraits(r *quant.Recipe) map[Trait]bool {
	found := map[Trait]bool{}
	if r == nil || r.Target != quant.TargetCoreML {
		return found
	}
	var all struct {
		Default asked   `json:"default"`
		Rules   []asked `json:"rules"`
	}
	if err := json.Unmarshal(r.Marshal(), &all); err != nil {
		return found
	}
	for _, f := range append([]asked{all.Default}, all.Rules...) {
		if f.Keep {
			continue
		}
		if f.Codec == "" || f.Codec == all.Default.Codec {
			d := all.Default
			if f.Codec = d.Codec; f.Bits == 0 {
				f.Bits = d.Bits
			}
			if f.Table == "" {
				f.Table = d.Table
			}
			if f.Sparsity == 0 && f.Pattern == "" {
				f.Sparsity, f.Pattern = d.Sparsity, d.Pattern
			}
		}
		sparse := f.Sparsity > 0 || f.Pattern != ""
		set := func(t Trait, is bool) { found[t] = found[t] || is }
		set(LowBitPalette, f.Codec == "palette" && f.Bits >= 1 && f.Bits <= 3)
		set(LowBitIntegers, f.Codec == "linear" && f.Bits >= 2 && f.Bits <= 3)
		set(Int8Table, f.Codec == "palette" && f.Table == "int8")
		set(SparsePalette, f.Codec == "palette" && sparse)
		set(Pruned, f.Codec != "palette" && f.Pattern == "2:4")
		set(QuantizedValues, f.Activations != nil)
		set(Int4Table, slices.Contains(f.Class, string(quant.Embedding)) && f.Bits > 0 && f.Bits <= 4)
	}
	return found
}
