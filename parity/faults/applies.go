package faults

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
)

// Gates that compare with the reference, in fp32 or, where the bundle
// computes in fp32 anyway, typed.
var (
	anyLogits     = []string{"logits.fp32.decode", "logits.typed.decode"}
	verifyLogits  = []string{"logits.fp32.verify", "logits.typed.verify"}
	prefillLogits = []string{"logits.fp32.prefill", "logits.typed.prefill"}
	fine          = []string{"logits.typed.decode", "layers"}
)

func name(layer int, what string) string { return fmt.Sprintf("layers_%d_%s", layer, what) }

// all joins conditions.
func all(conditions ...func(*chunking.Contract) bool) func(*chunking.Contract) bool {
	return func(c *chunking.Contract) bool {
		return !slices.ContainsFunc(conditions, func(f func(*chunking.Contract) bool) bool { return !f(c) })
	}
}

func not(f func(*chunking.Contract) bool) func(*chunking.Contract) bool {
	return func(c *chunking.Contract) bool { return !f(c) }
}

func gemma3(c *chunking.Contract) bool { return c.Model.Architecture == "gemma3" }

func gemma4(c *chunking.Contract) bool { return c.PerLayer != nil }

func gemma(c *chunking.Contract) bool { return gemma3(c) || gemma4(c) }

func qkNorm(c *chunking.Contract) bool { return gemma(c) || c.Model.Architecture == "qwen3" }

func sliding(c *chunking.Contract) bool { return slices.Contains(c.Model.Kinds, models.Sliding) }

func verifies(c *chunking.Contract) bool { return has(c, chunking.Verify) }

func prefills(c *chunking.Contract) bool { return has(c, chunking.Prefill) }

func tensorKV(c *chunking.Contract) bool { return c.KV == chunking.KVTensor }

func sidecar(c *chunking.Contract) bool { return c.Embedding.Mode == chunking.EmbedSidecar }

// borrowers are the layers that read another one's keys and values.
func borrowers(c *chunking.Contract, kind models.Kind) []int {
	var out []int
	for l, s := range c.Model.KVSource {
		if s != l && c.Model.Kinds[l] == kind {
			out = append(out, l)
		}
	}
	return out
}

func has(c *chunking.Contract, k chunking.FunctionKind) bool {
	return slices.ContainsFunc(c.Chunks[0].Functions, func(f chunking.Function) bool { return f.Kind == k })
}

// neighbours finds two layers of one kind in one chunk that have caches of
// their own.
func neighbours(c *chunking.Contract) (layer, before int, ok bool) {
	for _, ch := range c.Chunks {
		last := map[models.Kind]int{}
		for l := ch.First; l < ch.Last; l++ {
			if src := c.Model.KVSource; l < len(src) && src[l] != l {
				continue
			}
			if b, ok := last[c.Model.Kinds[l]]; ok {
				return l, b, true
			}
			last[c.Model.Kinds[l]] = l
		}
	}
	return 0, 0, false
}
