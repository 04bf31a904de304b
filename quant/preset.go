package quant

import (
	"fmt"
	"slices"
)

// presets make recipes for models of a number of layers.
var presets = map[string]func(layers int) Recipe{
	"mlx-4bit":             func(int) Recipe { return uniform(4) },
	"mlx-8bit":             func(int) Recipe { return uniform(8) },
	"mixed_2_6":            func(n int) Recipe { return mixed(2, 6, n) },
	"mixed_3_4":            func(n int) Recipe { return mixed(3, 4, n) },
	"mixed_3_6":            func(n int) Recipe { return mixed(3, 6, n) },
	"mixed_4_6":            func(n int) Recipe { return mixed(4, 6, n) },
	"turbo-2bit":           turbo(2),
	"turbo-3bit":           turbo(3),
	"turbo-4bit":           turbo(4),
	"turbo-8bit":           turbo(8),
	"coreml-w8":            coreml(Format{Codec: "linear", Bits: 8, Granularity: "channel"}),
	"coreml-int4-b32":      coreml(Format{Codec: "linear", Bits: 4, GroupSize: 32, Granularity: "block"}),
	"coreml-lut4":          coreml(Format{Codec: "palette", Bits: 4}),
	"coreml-lut4-g32":      coreml(Format{Codec: "palette", Bits: 4, GroupSize: 32}),
	"coreml-lut4-g32-int8": coreml(Format{Codec: "palette", Bits: 4, GroupSize: 32, Table: "int8"}),
	"coreml-lut4-scaled":   coreml(Format{Codec: "palette", Bits: 4, ChannelScale: true}),
	"coreml-lut6-g32":      coreml(Format{Codec: "palette", Bits: 6, GroupSize: 32}),
	"coreml-lut8":          coreml(Format{Codec: "palette", Bits: 8}),
	"coreml-pairs6-g32":    coreml(Format{Codec: "palette", Bits: 6, GroupSize: 32, Vector: 2}),
	"coreml-sparse50":      coreml(Format{Codec: "sparse", Sparsity: 0.5}),
	"coreml-sparse50-lut4": coreml(Format{Codec: "palette", Bits: 4, GroupSize: 32, Sparsity: 0.5}),
	"coreml-sparse50-w8":   coreml(Format{Codec: "linear", Bits: 8, Granularity: "channel", Sparsity: 0.5}),
	"coreml-sparse-2-4":    coreml(Format{Codec: "sparse", Pattern: "2:4"}),
}

func turbo(bits int) func(int) Recipe {
	return func(int) Recipe {
		return Recipe{Target: TargetMLX, Default: Format{Codec: "turboquant", Bits: bits, GroupSize: 32},
			Rules: []Rule{{Class: []Class{Router}, Optional: true, Format: Format{Codec: "turboquant", Bits: 8}}}}
	}
}

func coreml(f Format) func(int) Recipe {
	return func(int) Recipe { return Recipe{Target: TargetCoreML, Default: f} }
}

// Presets lists the names that Preset takes.
func Presets() []string {
	names := make([]string, 0, len(presets))
	for n := range presets {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Preset returns a named recipe for a model of so many layers:
//
//	mlx-4bit, mlx-8bit       affine, groups of 64
//	mixed_L_H                mlx-lm's recipes: L bits; H bits for lm_head and for
//	                         v and down projections of the first and last eighth
//	                         of the layers and every third in between
//	turbo-2bit, -3bit, -4bit, -8bit  turboquant, a scale for 32 columns
//	coreml-w8                int8, a scale a row
//	coreml-int4-b32          int4, a scale for blocks of 32 columns
//	coreml-lut4, -lut8       palettes, one a tensor
//	coreml-lut4-g32, -lut6-g32  palettes, one for 32 rows
//	coreml-lut4-g32-int8     with int8 entries
//	coreml-lut4-scaled       one palette a tensor behind a scale a row
//	coreml-pairs6-g32        6-bit palettes of pairs of weights, one for 32 rows
//	coreml-sparse50          half of the weights, in fp16
//	coreml-sparse50-lut4, coreml-sparse50-w8  half of the weights, as the codes
//	                         of coreml-lut4-g32 and coreml-w8
//	coreml-sparse-2-4        two of every four weights, in fp16
//
// MLX presets store the routers of mixtures of experts in 8 bits.
func Preset(name string, layers int) (*Recipe, error) {
	f, ok := presets[name]
	if !ok {
		return nil, fmt.Errorf("quant: there is no preset %q (want one of %v)", name, Presets())
	}
	r := f(layers)
	return &r, nil
}

// Uniform is the recipe of one affine format for all.
func Uniform(bits, group int) *Recipe {
	r := uniform(bits)
	r.Default.GroupSize = group
	return &r
}

func uniform(bits int) Recipe {
	return Recipe{Target: TargetMLX, Default: Format{Codec: "affine", Bits: bits, GroupSize: 64}, Rules: []Rule{router()}}
}

func router() Rule {
	return Rule{Class: []Class{Router}, Optional: true, Format: Format{Bits: 8, GroupSize: 64}}
}

func mixed(low, high, layers int) Recipe {
	var more []int
	for i := range layers {
		if i < layers/8 || i >= 7*layers/8 || (i-layers/8)%3 == 2 {
			more = append(more, i)
		}
	}
	// The default is what mlx-lm writes into config.json as such; no module has it.
	r := uniform(4)
	r.Rules = append(r.Rules,
		Rule{Class: []Class{Value, Down}, Layers: more, Format: Format{Bits: high}},
		Rule{Class: []Class{Head}, Optional: true, Format: Format{Bits: high}},
		Rule{Path: []string{"**"}, Format: Format{Bits: low}})
	return r
}
