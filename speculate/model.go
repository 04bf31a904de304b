package speculate

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/engine"
)

// Model drafts with a smaller model of the target's vocabulary, a converted
// bundle. It needs a decode function and caches that can take tokens back.
type Model struct {
	history
	e    *engine.Engine
	s    *engine.Session
	name string
	// fed are the tokens in the cache: those of the text, and drafts since mark.
	fed    []int32
	mark   *engine.Mark
	logits [][]float32
}

// NewModel starts a text.
func NewModel(name string, e *engine.Engine) *Model {
	return &Model{history: history{vocab: e.Contract().Model.Vocab}, e: e, s: e.NewSession(), name: name}
}

// Name is the name it was given.
func (m *Model) Name() string { return m.name }

// Reset forgets the text.
func (m *Model) Reset() {
	m.history.Reset()
	m.s.Reset()
	m.fed, m.mark = m.fed[:0], nil
}

// Draft continues the text and next greedily.
func (m *Model) Draft(next int32, n int) (drafter.Draft, error) {
	return m.extend(append(slices.Clip(m.tokens), next), n)
}

// extend drafts n tokens that follow text, whatever was fed before.
func (m *Model) extend(text []int32, n int) (drafter.Draft, error) {
	var d drafter.Draft
	n = min(n, m.e.Contract().Context-len(text)+1)
	if n <= 0 || len(text) == 0 {
		return d, nil
	}
	// The last token is fed again, if need be, to have its row.
	same := 0
	for same < len(m.fed) && same < len(text)-1 && m.fed[same] == text[same] {
		same++
	}
	if err := m.back(same); err != nil {
		return d, err
	}
	if rest := text[len(m.fed) : len(text)-1]; len(rest) > 0 {
		if err := m.feed(rest); err != nil {
			return d, err
		}
	}
	var err error
	if m.mark, err = m.s.Mark(n); err != nil {
		return d, err
	}
	m.logits = m.logits[:0]
	token := text[len(text)-1]
	for range n {
		row, err := m.s.Decode(token)
		if err != nil {
			return d, err
		}
		m.fed = append(m.fed, token)
		token = row.Token
		d.Tokens = append(d.Tokens, token)
		if row.Logits != nil {
			m.logits = append(m.logits, slices.Clone(row.Logits))
		}
	}
	if len(m.logits) == n {
		d.Logits = m.logits
	}
	return d, nil
}

// back takes back all but the first keep tokens.
func (m *Model) back(keep int) error {
	if keep == len(m.fed) {
		return nil
	}
	if m.mark != nil {
		if base := m.mark.Pos(); keep >= base {
			if err := m.s.Rewind(m.mark, keep-base); err != nil {
				return err
			}
			m.fed, m.mark = m.fed[:keep], nil
			return nil
		}
	}
	// Further back than the mark: another text, or tokens of the text that were
	// encoded anew.
	m.s.Reset()
	again := slices.Clone(m.fed[:keep])
	m.fed, m.mark = m.fed[:0], nil
	if len(again) == 0 {
		return nil
	}
	return m.feed(again)
}

func (m *Model) feed(ids []int32) error {
	if _, err := m.s.Prefill(ids, nil); err != nil {
		return fmt.Errorf("speculate: %s: %w", m.name, err)
	}
	m.fed = append(m.fed, ids...)
	m.mark = nil
	return nil
}
