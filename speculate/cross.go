package speculate

import (
	"fmt"
	"strings"

	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/tokenizer"
)

// CrossVocabulary drafts with a model that has another tokenizer: the text so
// far is encoded for it, what it says is decoded, and encoded again for the
// target. Drafts are what follows the text so far, where both encodings agree
// on it.
//
// Texts are handled whole, so that a round takes time in their length; window
// bounds the tokens of the target that are encoded again, for 0 it is
// DefaultWindow.
func CrossVocabulary(m *Model, own, target *tokenizer.Tokenizer, vocab, window int) Source {
	if window == 0 {
		window = DefaultWindow
	}
	return &cross{history: history{vocab: vocab}, m: m, own: own, target: target, window: window}
}

// DefaultWindow is the number of tokens that CrossVocabulary encodes again to
// find where drafts begin.
const DefaultWindow = 16

type cross struct {
	history
	m           *Model
	own, target *tokenizer.Tokenizer
	window      int
}

func (c *cross) Name() string { return c.m.Name() + " (re-encoded)" }

func (c *cross) Reset() {
	c.history.Reset()
	c.m.Reset()
}

func (c *cross) Draft(next int32, n int) (drafter.Draft, error) {
	var d drafter.Draft
	text := append(c.tokens, next)
	plain := func(t *tokenizer.Tokenizer, ids []int32) string {
		return t.Decode(ids, tokenizer.DecodeOptions{SkipSpecial: true})
	}
	known := plain(c.target, text)
	own, err := c.own.Encode(known, tokenizer.EncodeOptions{AddSpecial: true})
	if err != nil || len(own) == 0 {
		return d, nil // half a character: another round will do
	}
	// A token of one vocabulary may be several of the other.
	more, err := c.m.extend(own, 2*n+1)
	if err != nil {
		return d, err
	}
	all := plain(c.own, append(own, more.Tokens...))
	fresh, ok := strings.CutPrefix(all, known)
	if !ok || fresh == "" {
		return d, nil
	}
	old := text[max(0, len(text)-c.window):]
	again, err := c.target.Encode(plain(c.target, old)+fresh, tokenizer.EncodeOptions{})
	if err != nil {
		return d, nil
	}
	a, ok := Align(old, again)
	if !ok || a.Discrepancy > 0 {
		return d, nil // the text so far would be encoded otherwise
	}
	d.Tokens = a.New[:min(n, len(a.New))]
	return d, nil
}

// CheckVocabularies compares two tokenizers that are said to be one: a model
// drafts for a target by ids only if all ids mean the same.
func CheckVocabularies(a, b *tokenizer.Tokenizer, size int) error {
	for id := range int32(size) {
		x, okX := a.Token(id)
		y, okY := b.Token(id)
		if okX != okY || x != y {
			return fmt.Errorf("speculate: drafter and target have different tokenizers: id %d is %q and %q (a drafter of another family drafts with --cross)", id, x, y)
		}
	}
	return nil
}
