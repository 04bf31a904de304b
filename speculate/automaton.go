package speculate

import "slices"

// Automaton is a suffix automaton: it knows how often every run of tokens
// occurs in what was appended, in memory linear in its length.
//
// A state stands for all runs that end at the same positions. Their lengths
// are those above the length of the state's link, up to its own; the link
// stands for the next shorter suffixes, which end at more positions.
type Automaton struct {
	states []state
	last   int
	length int
}

type state struct {
	next  map[int32]int
	len   int
	link  int
	count int // of occurrences
	end   int // the latest of them, as the number of tokens up to its end
}

// NewAutomaton returns an automaton of nothing.
func NewAutomaton() *Automaton { return &Automaton{states: []state{{link: -1}}} }

// Len is the number of tokens appended.
func (a *Automaton) Len() int { return a.length }

// Append adds a token to the end.
func (a *Automaton) Append(token int32) {
	a.length++
	cur := a.add(state{len: a.length})
	p := a.last
	for p >= 0 && !a.has(p, token) {
		a.set(p, token, cur)
		p = a.states[p].link
	}
	if p >= 0 {
		q := a.states[p].next[token]
		if a.states[q].len == a.states[p].len+1 {
			a.states[cur].link = q
		} else {
			// q stands for runs of which only the shorter ones end here as well:
			// they become a state of their own.
			c := a.states[q]
			c.len = a.states[p].len + 1
			c.next = make(map[int32]int, len(a.states[q].next))
			for k, v := range a.states[q].next {
				c.next[k] = v
			}
			clone := a.add(c)
			for p >= 0 && a.states[p].next[token] == q && a.has(p, token) {
				a.set(p, token, clone)
				p = a.states[p].link
			}
			a.states[q].link = clone
			a.states[cur].link = clone
		}
	}
	a.last = cur
	for s := cur; s > 0; s = a.states[s].link {
		a.states[s].count++
		a.states[s].end = a.length
	}
}

func (a *Automaton) add(s state) int {
	a.states = append(a.states, s)
	return len(a.states) - 1
}

func (a *Automaton) has(s int, token int32) bool {
	_, ok := a.states[s].next[token]
	return ok
}

func (a *Automaton) set(s int, token int32, to int) {
	if a.states[s].next == nil {
		a.states[s].next = map[int32]int{}
	}
	a.states[s].next[token] = to
}

// Count is the number of occurrences of a run, overlapping ones included.
func (a *Automaton) Count(run []int32) int {
	s := 0
	for _, t := range run {
		next, ok := a.states[s].next[t]
		if !ok {
			return 0
		}
		s = next
	}
	if s == 0 {
		return a.length + 1
	}
	return a.states[s].count
}

// Suffix drafts with a suffix automaton of the sequence so far. For every
// length m of a suffix that occurred before it follows the most frequent
// continuation, and takes the path with the largest sum of probabilities, which
// estimates how many tokens will be accepted; among equal ones that of the
// longer suffix. The probability of a token is the share of occurrences of the
// suffix that go on along the path, the suffix's own among them. (Arctic
// Inference's suffix decoding with one tree. Ties between continuations go to
// the one seen last.)
type Suffix struct {
	MaxDepth int     // of a suffix and its continuation together
	Factor   float64 // at most int(m·Factor + Offset) tokens follow a suffix of m
	Offset   float64
	MinProb  float64 // a path ends below this probability
}

// DefaultSuffix has the settings of Arctic Inference.
var DefaultSuffix = Suffix{MaxDepth: 64, Factor: 1, MinProb: 0.1}

// SuffixDraft is a path with the probability of each token.
type SuffixDraft struct {
	Tokens []int32
	Probs  []float64
	Score  float64 // their sum
	Match  int     // length of the suffix
}

// Draft proposes up to gamma tokens to follow what a holds.
func (s Suffix) Draft(a *Automaton, gamma int) SuffixDraft {
	var best SuffixDraft
	context := min(a.length, s.MaxDepth)
	// The states of the suffixes, longest first.
	chain := []int{}
	for q := a.last; q > 0; q = a.states[q].link {
		chain = append(chain, q)
	}
	slices.Reverse(chain)
	at := 0
	for m := 1; m < context; m++ {
		for a.states[chain[at]].len < m {
			at++
		}
		if d := s.follow(a, chain[at], m, gamma); len(d.Tokens) > 0 && d.Score >= best.Score {
			best = d
		}
	}
	return best
}

// follow walks from the state of a suffix of m tokens.
func (s Suffix) follow(a *Automaton, q, m, gamma int) SuffixDraft {
	d := SuffixDraft{Match: m}
	all := float64(a.states[q].count)
	limit := min(gamma, int(float64(m)*s.Factor+s.Offset+1e-6), s.MaxDepth-m)
	for len(d.Tokens) < limit {
		var token int32
		next := -1
		for t, r := range a.states[q].next {
			if next < 0 || a.before(r, next) {
				token, next = t, r
			}
		}
		if next < 0 {
			break
		}
		p := float64(a.states[next].count) / all
		if p < s.MinProb {
			break
		}
		d.Tokens, d.Probs, d.Score = append(d.Tokens, token), append(d.Probs, p), d.Score+p
		q = next
	}
	return d
}

// before orders continuations: the more frequent first, then the later one.
// Different continuations of a run never end at the same position.
func (a *Automaton) before(r, q int) bool {
	x, y := &a.states[r], &a.states[q]
	return x.count > y.count || x.count == y.count && x.end > y.end
}
