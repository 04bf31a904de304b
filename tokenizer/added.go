package tokenizer

import (
	"fmt"
	"sort"
	"unicode/utf8"
)

// addedToken is an entry of "added_tokens": a string that is found in the
// text before anything else looks at it.
type addedToken struct {
	id         int32
	content    string
	singleWord bool // only where no word character touches it
	lstrip     bool // takes the white space before it along
	rstrip     bool // takes the white space after it along
	normalized bool // is searched in the normalized text, in normalized form
	special    bool // is left out by SkipSpecial
	// spelling is what it decodes to: the normalized form if it has one.
	spelling string
}

// readAdded reads the added_tokens array.
func readAdded(n node) ([]addedToken, error) {
	items, err := n.array()
	if err != nil {
		return nil, err
	}
	out := make([]addedToken, 0, len(items))
	for _, item := range items {
		f, err := item.component("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")
		if err != nil {
			return nil, err
		}
		var t addedToken
		id, err := f["id"].count()
		if err != nil {
			return nil, err
		}
		t.id = int32(id)
		if t.content, err = f["content"].str(); err != nil {
			return nil, err
		}
		if t.content == "" {
			return nil, item.errorf("content is empty")
		}
		for _, flag := range []struct {
			name string
			to   *bool
		}{
			{"single_word", &t.singleWord}, {"lstrip", &t.lstrip}, {"rstrip", &t.rstrip},
			{"normalized", &t.normalized}, {"special", &t.special},
		} {
			if *flag.to, err = f[flag.name].boolean(); err != nil {
				return nil, err
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// addTokens registers the added tokens. The reference library ignores the
// file's id: a token of the vocabulary keeps the id it has there, any other
// gets the next free one. Where that differs from the file, one of the two
// is wrong, and nothing here could tell which.
func (t *Tokenizer) addTokens(tokens []addedToken) error {
	t.added = make(map[int32]*addedToken, len(tokens))
	t.addedIDs = make(map[string]int32, len(tokens))
	t.specials = map[string]bool{}
	next := int32(t.vocab.count())
	for i := range tokens {
		tok := &tokens[i]
		if _, ok := t.addedIDs[tok.content]; ok {
			return fmt.Errorf("duplicate added token %q", tok.content)
		}
		tok.spelling = tok.content
		if tok.normalized && t.normalize != nil {
			tok.spelling = t.normalize(tok.content)
			if tok.spelling == "" {
				return fmt.Errorf("added token %q is empty once normalized", tok.content)
			}
		}
		id, ok := t.vocab.id(tok.content)
		if !ok {
			id = next
			next++
		}
		if id != tok.id {
			return fmt.Errorf("added token %q says id %d, but loads as id %d (is the file edited by hand?)", tok.content, tok.id, id)
		}
		if have, taken := t.vocab.token(id); taken && !ok {
			return fmt.Errorf("added token %q gets id %d, which is token %q already", tok.content, id, have)
		}
		t.added[id], t.addedIDs[tok.content] = tok, id
		if tok.special {
			t.specials[tok.content] = true
		}
	}
	var raw, normalized []*addedToken
	for _, tok := range t.added {
		if tok.normalized {
			normalized = append(normalized, tok)
		} else {
			raw = append(raw, tok)
		}
	}
	var err error
	if t.rawTokens, err = newTokenFinder(raw, func(a *addedToken) string { return a.content }); err != nil {
		return err
	}
	t.normalizedTokens, err = newTokenFinder(normalized, func(a *addedToken) string { return a.spelling })
	return err
}

// tokenFinder finds added tokens, leftmost and longest first.
type tokenFinder struct {
	keys   []string // sorted
	tokens []*addedToken
	first  [257]int32 // keys[first[b]:first[b+1]] start with byte b
}

func newTokenFinder(tokens []*addedToken, key func(*addedToken) string) (*tokenFinder, error) {
	sort.Slice(tokens, func(i, j int) bool {
		a, b := key(tokens[i]), key(tokens[j])
		return a < b || a == b && tokens[i].id < tokens[j].id
	})
	f := &tokenFinder{tokens: tokens}
	for i, t := range tokens {
		k := key(t)
		if i > 0 && k == f.keys[i-1] {
			return nil, fmt.Errorf("added tokens %q and %q are the same once normalized", tokens[i-1].content, t.content)
		}
		f.keys = append(f.keys, k)
		f.first[int(k[0])+1] = int32(i + 1)
	}
	for b := 1; b < len(f.first); b++ {
		f.first[b] = max(f.first[b], f.first[b-1])
	}
	return f, nil
}

// at returns the longest token that s has at byte i. Sorted keys are a trie:
// every byte narrows the range of keys that still agree.
func (f *tokenFinder) at(s string, i int) (*addedToken, int) {
	lo, hi := int(f.first[s[i]]), int(f.first[int(s[i])+1])
	var found *addedToken
	length := 0
	for depth := 1; lo < hi; depth++ {
		if len(f.keys[lo]) == depth {
			found, length = f.tokens[lo], depth
			lo++
		}
		if i+depth >= len(s) {
			break
		}
		c := s[i+depth]
		lo += sort.Search(hi-lo, func(k int) bool { return f.keys[lo+k][depth] >= c })
		hi = lo + sort.Search(hi-lo, func(k int) bool { return f.keys[lo+k][depth] > c })
	}
	return found, length
}

// cut takes the added tokens out of every text piece.
func (f *tokenFinder) cut(pieces []piece) []piece {
	if len(f.keys) == 0 {
		return pieces
	}
	return each(pieces, func(out []piece, in piece) []piece {
		s, done := in.text, 0
		text := func(end int) {
			if done < end {
				out = append(out, piece{s[done:end], notAdded, in.first && done == 0})
			}
		}
		for i := 0; i < len(s); {
			tok, length := f.at(s, i)
			if tok == nil {
				i++
				continue
			}
			start, end := i, i+length
			i = end
			if tok.singleWord && (wordBefore(s, start) || wordAfter(s, end)) {
				continue
			}
			if tok.lstrip {
				start = max(done, spaceSuffix(s[:start]))
			}
			if tok.rstrip {
				end = run(s, end, classSpace, true)
			}
			text(start)
			// A token whose text lies in white space that the one before it
			// took along is gone with it, if it strips on the left itself.
			if start < end {
				out = append(out, piece{text: s[start:end], id: tok.id})
			}
			done = end
		}
		text(len(s))
		return out
	})
}

func wordBefore(s string, i int) bool {
	if i == 0 {
		return false
	}
	r, _ := utf8.DecodeLastRuneInString(s[:i])
	return classOf(r)&classWord != 0
}

func wordAfter(s string, i int) bool {
	_, class, _ := runeAt(s, i)
	return class&classWord != 0
}
