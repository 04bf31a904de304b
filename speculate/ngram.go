package speculate

import "slices"

// PromptLookup proposes what followed the leftmost earlier occurrence of the
// last tokens: N from MaxN down to 1, the first with a non-empty continuation
// wins. The continuation may run into the tail itself. It is cut before the
// first token of EOS; if that leaves nothing, shorter N are not tried.
// (transformers' prompt lookup decoding.)
type PromptLookup struct {
	MaxN      int
	MaxLength int // of the whole sequence; 0: no limit
	EOS       []int32
}

// Draft proposes up to gamma tokens to follow history.
func (p PromptLookup) Draft(history []int32, gamma int) []int32 {
	l := len(history)
	limit := l
	if p.MaxLength > 0 {
		if p.MaxLength == l+1 {
			return nil
		}
		limit = min(limit, p.MaxLength)
	}
	for n := min(p.MaxN, l-1); n >= 1; n-- {
		tail := history[l-n:]
		for i := 0; i+n <= l; i++ {
			if !slices.Equal(history[i:i+n], tail) {
				continue
			}
			end := min(i+n+gamma, limit)
			if end <= i+n {
				continue
			}
			found := history[i+n : end]
			if stop := slices.IndexFunc(found, func(t int32) bool { return slices.Contains(p.EOS, t) }); stop >= 0 {
				found = found[:stop]
			}
			return slices.Clone(found)
		}
	}
	return nil
}

// EarliestMatch proposes what followed the earliest occurrence of the longest
// tail of MinN to MaxN tokens that occurs before. The continuation may run into
// the tail. (vLLM's n-gram proposer.)
type EarliestMatch struct {
	MinN, MaxN int
	MaxLength  int // of the whole sequence; 0: no limit
}

// Draft proposes up to gamma tokens to follow history.
func (e EarliestMatch) Draft(history []int32, gamma int) []int32 {
	l := len(history)
	if e.MaxLength > 0 {
		gamma = min(gamma, e.MaxLength-l)
	}
	if gamma <= 0 {
		return nil
	}
	for n := min(e.MaxN, l-1); n >= max(e.MinN, 1); n-- {
		for i := 0; i+n < l; i++ {
			if slices.Equal(history[i:i+n], history[l-n:]) {
				return slices.Clone(history[i+n : min(i+n+gamma, l)])
			}
		}
	}
	return nil
}

// RecentMatch proposes what followed the most recent occurrence of the last N
// tokens that lies wholly before them, up to where they begin. (CoreML-LLM's
// prompt lookup.)
type RecentMatch struct{ N int }

// Draft proposes up to gamma tokens to follow history.
func (r RecentMatch) Draft(history []int32, gamma int) []int32 {
	l, n := len(history), r.N
	for i := l - 2*n - 1; i >= 0; i-- {
		if slices.Equal(history[i:i+n], history[l-n:]) {
			return slices.Clone(history[i+n : min(i+n+gamma, l-n)])
		}
	}
	return nil
}

// SuffixScan proposes what followed the most recent occurrence of the last 4,
// else 3, else 2 tokens; it may run into the tail. (CoreML-LLM's benchmark.)
type SuffixScan struct{}

// Draft proposes up to gamma tokens to follow history.
func (SuffixScan) Draft(history []int32, gamma int) []int32 {
	l := len(history)
	if l < 4 {
		return nil
	}
	for n := 4; n >= 2; n-- {
		for i := l - n - 1; i >= 0; i-- {
			if slices.Equal(history[i:i+n], history[l-n:]) {
				return slices.Clone(history[i+n : min(i+n+gamma, l)])
			}
		}
	}
	return nil
}
