package speculate

import (
	"fmt"

	"github.com/smelt-go/smelt/drafter"
)

// Choice is what a target says after a token.
type Choice struct {
	Token  int32     // the first of the largest logits
	Logits []float32 // nil if the target does not deliver them; valid until the next call
}

// Target is a model that verifies drafts, at work on one text.
type Target interface {
	// Describe says what the target is, to be held against a drafter's needs.
	Describe() drafter.Target
	Context() int   // positions
	EOS() []int32   // tokens that end a text
	MaxVerify() int // tokens of a Verify call
	// Require asks for what Rows must hold from now on. It is an error if the
	// target cannot deliver it.
	Require(drafter.Needs) error
	Reset()
	Pos() int // tokens processed
	// Prefill processes tokens that are part of the text.
	Prefill(ids []int32) (drafter.Rows, error)
	// Decode processes one token that is part of the text.
	Decode(id int32) (Choice, drafter.Rows, error)
	// Verify feeds tokens of which nobody knows yet whether they are part of
	// the text. Choice t is that after ids[t], whatever follows it.
	Verify(ids []int32) ([]Choice, error)
	// Commit makes the first n of the last Verify call part of the text.
	Commit(n int) (drafter.Rows, error)
}

// Source proposes tokens. See drafter.Session for the order of calls.
type Source interface {
	drafter.Session
	Name() string
}

// named is a session with a name.
type named struct {
	drafter.Session
	name string
}

func (n named) Name() string { return n.name }

// FromSession makes a source of a drafter's session.
func FromSession(name string, s drafter.Session) Source { return named{s, name} }

// Pair checks that a source can draft for a target, and tells the target what
// the source reads.
func Pair(t Target, s Source) error {
	n, d := s.Needs(), t.Describe()
	if n.Hidden > 0 || len(n.Taps) > 0 || n.Norm != "" || len(n.Keys) > 0 {
		if err := n.Fits(d); err != nil {
			return fmt.Errorf("speculate: %s: %w", s.Name(), err)
		}
	} else if n.Vocab != 0 && n.Vocab != d.Vocab {
		return fmt.Errorf("speculate: %s has a vocabulary of %d tokens, the target %s one of %d (draft across vocabularies, or take a drafter of the target's family)", s.Name(), n.Vocab, d.Name, d.Vocab)
	}
	return t.Require(n)
}

// needsNothing reports whether a source reads only tokens.
func needsNothing(n drafter.Needs) bool {
	return len(n.Taps) == 0 && n.Norm == "" && len(n.Keys) == 0
}

// history is what sources that read only tokens have in common.
type history struct {
	tokens []int32
	vocab  int
}

func (h *history) Needs() drafter.Needs { return drafter.Needs{Vocab: h.vocab} }
func (h *history) Position() int        { return len(h.tokens) }
func (h *history) MaxDraft() int        { return 1 << 10 }
func (h *history) Reset()               { h.tokens = h.tokens[:0] }

func (h *history) Commit(r drafter.Rows) error {
	if r.Position != len(h.tokens) {
		return fmt.Errorf("speculate: rows start at position %d, want %d", r.Position, len(h.tokens))
	}
	h.tokens = append(h.tokens, r.Tokens...)
	return nil
}

// Rule proposes tokens to follow a history: PromptLookup, EarliestMatch,
// RecentMatch, SuffixScan.
type Rule interface {
	Draft(history []int32, gamma int) []int32
}

// Lookup drafts by a rule over the text so far.
func Lookup(name string, rule Rule) Source { return &lookup{rule: rule, name: name} }

type lookup struct {
	history
	rule Rule
	name string
}

func (l *lookup) Name() string { return l.name }

func (l *lookup) Draft(next int32, n int) (drafter.Draft, error) {
	return drafter.Draft{Tokens: l.rule.Draft(append(l.tokens, next), n)}, nil
}

// SuffixSource drafts with a suffix automaton of the text so far.
func SuffixSource(name string, s Suffix) Source {
	return &suffix{rule: s, name: name, a: NewAutomaton()}
}

type suffix struct {
	history
	rule    Suffix
	name    string
	a       *Automaton
	pending []int32 // appended to a, but not committed: the token that Draft was given
}

func (s *suffix) Name() string { return s.name }

func (s *suffix) Reset() {
	s.history.Reset()
	s.a, s.pending = NewAutomaton(), nil
}

func (s *suffix) Draft(next int32, n int) (drafter.Draft, error) {
	text := append(s.tokens, next)
	// An automaton only grows. The token it was given in advance nearly always
	// is the one that came.
	if k := s.a.Len(); k > len(text) || k == len(text) && s.pending[0] != next {
		s.a = NewAutomaton()
	}
	for _, t := range text[s.a.Len():] {
		s.a.Append(t)
	}
	s.pending = []int32{next}
	return drafter.Draft{Tokens: s.rule.Draft(s.a, n).Tokens}, nil
}

// Commit checks that the token given in advance came.
func (s *suffix) Commit(r drafter.Rows) error {
	if s.a.Len() > len(s.tokens) && len(r.Tokens) > 0 && s.pending[0] != r.Tokens[0] {
		s.a = NewAutomaton()
	}
	return s.history.Commit(r)
}

// Union asks several sources and takes the longest proposal; among equal ones
// that of the source named first.
func Union(sources ...Source) Source { return &union{sources: sources} }

type union struct{ sources []Source }

func (u *union) Name() string {
	name := ""
	for i, s := range u.sources {
		if i > 0 {
			name += "+"
		}
		name += s.Name()
	}
	return name
}

// Needs is what the sources read together. Contradictions show when the union
// is paired with a target: a later need takes the place of an earlier one.
func (u *union) Needs() drafter.Needs {
	var all drafter.Needs
	for _, s := range u.sources {
		n := s.Needs()
		if needsNothing(n) {
			if n.Vocab != 0 {
				all.Vocab = n.Vocab
			}
			continue
		}
		all = n
	}
	return all
}

func (u *union) Position() int { return u.sources[0].Position() }

func (u *union) MaxDraft() int {
	n := 0
	for _, s := range u.sources {
		n = max(n, s.MaxDraft())
	}
	return n
}

func (u *union) Reset() {
	for _, s := range u.sources {
		s.Reset()
	}
}

func (u *union) Commit(r drafter.Rows) error {
	for _, s := range u.sources {
		if err := s.Commit(r); err != nil {
			return err
		}
	}
	return nil
}

func (u *union) Draft(next int32, n int) (drafter.Draft, error) {
	var best drafter.Draft
	for _, s := range u.sources {
		d, err := s.Draft(next, min(n, s.MaxDraft()))
		if err != nil {
			return d, fmt.Errorf("speculate: %s: %w", s.Name(), err)
		}
		if len(d.Tokens) > len(best.Tokens) {
			best = d
		}
	}
	return best, nil
}
