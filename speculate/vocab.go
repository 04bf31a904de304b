package speculate

import "slices"

// VocabMap pairs the ids of two vocabularies that stand for the same text.
type VocabMap struct {
	ToTarget  []int32 // by drafter id; -1: none
	ToDrafter []int32 // by target id
}

// NewVocabMap pairs ids whose strings, each decoded alone, are equal. The empty
// string pairs with nothing; among ids of one vocabulary with the same string
// the lowest is the one others map to. (CoreML-LLM's vocabulary map.)
func NewVocabMap(drafter, target []string) VocabMap {
	return VocabMap{pair(drafter, target), pair(target, drafter)}
}

func pair(from, to []string) []int32 {
	owner := make(map[string]int32, len(to))
	for id, s := range to {
		if _, taken := owner[s]; !taken && s != "" {
			owner[s] = int32(id)
		}
	}
	out := make([]int32, len(from))
	for id, s := range from {
		out[id] = -1
		if other, ok := owner[s]; ok {
			out[id] = other
		}
	}
	return out
}

// Coverage is the share of drafter ids that have a target id.
func (v VocabMap) Coverage() float64 {
	n := 0
	for _, id := range v.ToTarget {
		if id >= 0 {
			n++
		}
	}
	return float64(n) / float64(max(1, len(v.ToTarget)))
}

// Burst is what a drafter of another vocabulary proposed, in target ids.
type Burst struct {
	Drafts []int32
	Verify []int32 // the seed and all drafts but the last; nil if the burst is dropped
	// Next is the position of the drafter after so many drafts were accepted.
	Next func(accepted int) int
}

// Burst maps a greedy run of the drafter, which starts at position start, to
// target ids. It stops at the first id without a partner; a burst shorter than
// gamma is dropped. next yields the drafter's tokens one by one, fed with the
// one before. (CoreML-LLM's cross-vocabulary engine, which verifies as many
// tokens as it drafts, the seed among them.)
func (v VocabMap) Burst(seed int32, gamma, start int, next func(int32) (int32, error)) (Burst, error) {
	var b Burst
	if seed < 0 || int(seed) >= len(v.ToDrafter) || v.ToDrafter[seed] < 0 {
		return b, nil
	}
	token := v.ToDrafter[seed]
	for len(b.Drafts) < gamma {
		t, err := next(token)
		if err != nil {
			return b, err
		}
		if t < 0 || int(t) >= len(v.ToTarget) || v.ToTarget[t] < 0 {
			break
		}
		b.Drafts = append(b.Drafts, v.ToTarget[t])
		token = t
	}
	if len(b.Drafts) == gamma && gamma > 0 {
		b.Verify = append([]int32{seed}, b.Drafts[:gamma-1]...)
		b.Next = func(accepted int) int { return start + accepted + 1 }
	}
	return b, nil
}

// Alignment says how a window of text that was encoded again relates to the
// tokens before.
type Alignment struct {
	Discrepancy int     // old tokens at the end that do not hold any more
	Replacement []int32 // what they became
	New         []int32 // what follows
}

// Align finds the longest run of tokens that both windows have in common, the
// first in row-major order of new and old. It reports false if there is none.
// (transformers' universal assisted generation.)
func Align(old, fresh []int32) (Alignment, bool) {
	best, atNew, atOld := 0, 0, 0
	for i := range fresh {
		for j := range old {
			n := 0
			for i+n < len(fresh) && j+n < len(old) && fresh[i+n] == old[j+n] {
				n++
			}
			if n > best {
				best, atNew, atOld = n, i, j
			}
		}
	}
	if best == 0 {
		return Alignment{}, false
	}
	rest := fresh[atNew+best:]
	gap := len(old) - atOld - best
	cut := min(gap, len(rest))
	return Alignment{gap, slices.Clone(rest[:cut]), slices.Clone(rest[cut:])}, true
}
