package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling chooses the next token. The zero value is greedy.
type Sampling struct {
	Temperature float64 // 0: greedy
	TopK        int     // 0: all
	TopP        float64 // 0 or 1: all
	Seed        uint64
}

// sampler draws tokens; equal seeds draw equal tokens.
type sampler struct {
	Sampling
	rng *rand.Rand
}

func newSampler(s Sampling) *sampler { return &sampler{s, rand.New(rand.NewPCG(s.Seed, 0x736d656c74))} }

// next picks a token from a row.
func (s *sampler) next(r Row) (int32, error) {
	if s.Temperature == 0 {
		return r.Token, nil
	}
	if r.Logits == nil {
		return 0, fmt.Errorf("engine: sampling needs logits, and this bundle has only a token head (convert with --head token,logits)")
	}
	order := make([]int, len(r.Logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case r.Logits[a] > r.Logits[b]:
			return -1
		case r.Logits[a] < r.Logits[b]:
			return 1
		}
		return 0
	})
	if s.TopK > 0 && s.TopK < len(order) {
		order = order[:s.TopK]
	}
	p := make([]float64, len(order))
	top, sum := float64(r.Logits[order[0]]), 0.0
	for i, id := range order {
		p[i] = math.Exp((float64(r.Logits[id]) - top) / s.Temperature)
		sum += p[i]
	}
	if s.TopP > 0 && s.TopP < 1 {
		acc := 0.0
		for i := range p {
			if acc += p[i]; acc >= s.TopP*sum {
				p, sum = p[:i+1], acc
				break
			}
		}
	}
	x := s.rng.Float64() * sum
	for i := range p {
		if x -= p[i]; x < 0 {
			return int32(order[i]), nil
		}
	}
	return int32(order[len(p)-1]), nil
}

// GenerateOptions configures Generate.
type GenerateOptions struct {
	MaxTokens int
	Sampling  Sampling
	Stop      []int32           // ends the text, besides the contract's EOS
	IgnoreEOS bool              // go on after EOS
	OnToken   func(int32) error // called as tokens come
}

// Generate feeds the prompt and then up to MaxTokens tokens of its own. It
// stops at EOS, at the end of the context or when ctx is done. The prompt
// must not be empty. It returns the generated ids, EOS included.
func (s *Session) Generate(ctx context.Context, prompt []int32, o GenerateOptions) ([]int32, error) {
	if len(prompt) == 0 {
		return nil, fmt.Errorf("engine: the prompt has no tokens")
	}
	row, err := s.Prefill(prompt, nil)
	if err != nil {
		return nil, err
	}
	sm := newSampler(o.Sampling)
	var out []int32
	for len(out) < o.MaxTokens {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		id, err := sm.next(row)
		if err != nil {
			return out, err
		}
		out = append(out, id)
		if o.OnToken != nil {
			if err := o.OnToken(id); err != nil {
				return out, err
			}
		}
		stop := slices.Contains(o.Stop, id)
		if !o.IgnoreEOS {
			stop = stop || slices.Contains(s.e.contract.Model.EOS, int(id))
		}
		if stop || len(out) == o.MaxTokens || s.pos >= s.e.contract.Context {
			break
		}
		if row, err = s.Decode(id); err != nil {
			return out, err
		}
	}
	return out, nil
}
