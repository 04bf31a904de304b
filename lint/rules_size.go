package lint

import (
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// Sizes: a program that is too large leaves the Neural Engine without a word,
// or does not load.

// Limits of the bytes of one weight file and of the layers of one program.
const (
	phoneBytes  = 950_000_000
	engineBytes = 1_400_000_000
	fileBytes   = 2 << 30
	deepLayers  = 15
	manyFuncs   = 3
)

var sizeRules = []Rule{
	{ID: "weights-2gib", Severity: Error, Source: "apple/coremltools#1807, apple/coremltools#2593",
		Statement: "a weight file has at most 2 GiB",
		chunk:     weights(fileBytes, 1<<62, "more than the 2 GiB that can be declared (cut into more chunks, or compress)")},
	{ID: "weights-1400mb", Severity: Warning, Source: "john-rocky/CoreML-LLM: docs/QWEN35_LESSONS.md",
		Statement: "a weight file has at most 1.4 GB: larger programs were seen to move to the GPU silently",
		chunk:     weights(engineBytes, fileBytes, "above 1.4 GB a program was seen to run on the GPU without a message (cut into more chunks, or compress)")},
	{ID: "weights-950mb", Severity: Warning, Source: "apple/coremltools: docs-guides/source/mlmodel-utilities.md, john-rocky/CoreML-LLM: docs/ANE_OPTIMIZATION_SURVEY.md",
		Statement: "a weight file has at most 950 MB: the Neural Engine of an iPhone takes up to 1 GB",
		chunk:     weights(phoneBytes, engineBytes, "an iPhone's Neural Engine takes up to 1 GB a program (cut into more chunks, or compress)")},
	{ID: "layers", Severity: Info, Source: "john-rocky/CoreML-LLM: docs/CHUNK_CONSOLIDATION_BENCH.md",
		Statement: "a program has fewer than 15 layers",
		chunk:     deep},
	{ID: "functions", Severity: Info, Source: "john-rocky/CoreML-LLM: docs/MLSTATE_MULTIMODAL_PROBE.md",
		Statement: "a package has at most 3 functions",
		chunk: func(r *reporter, c *chunk) {
			if n := len(c.functions); n > manyFuncs {
				r.add("%d functions: several made a first load about 3 times slower, and four prefill lengths in memory slowed the default one 2.2 times (keep those that are used)", n)
			}
		}},
}

// weights reports files of more than low and at most high bytes.
func weights(low, high int64, what string) func(*reporter, *chunk) {
	return func(r *reporter, c *chunk) {
		if c.weights > low && c.weights <= high {
			r.add("the weights take %s: %s", megabytes(c.weights), what)
		}
	}
}

func deep(r *reporter, c *chunk) {
	most := 0
	for _, f := range c.functions {
		n := 0
		for _, o := range f.ops {
			if computes(o) {
				n++
			}
		}
		most = max(most, n)
	}
	if n := c.depth(); n >= deepLayers {
		r.add("about %d layers, %d operations in the largest function: compilers of 15 layers and more hung in one project, though 17 and 21 ran in others (if the first load hangs, cut into more chunks)", n, most)
	}
}

// depth is the number of decoder layers: as noted, or the number of
// attentions in a function.
func (c *chunk) depth() int {
	if c.layers > 0 {
		return c.layers
	}
	most := 0
	for _, f := range c.functions {
		n := 0
		for _, o := range f.ops {
			if o.Kind == "softmax" || o.Kind == "scaled_dot_product_attention" {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// compressed lists the constexpr operations of all functions.
func (c *chunk) compressed() []*mil.Op {
	var out []*mil.Op
	for _, f := range c.functions {
		out = append(out, slices.DeleteFunc(slices.Clone(f.ops), func(o *mil.Op) bool { return !isConstexpr(o) })...)
	}
	return out
}
