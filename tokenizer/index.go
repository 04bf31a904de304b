package tokenizer

import (
	"hash/maphash"
	"unsafe"
)

// tokenIndex finds the id of a token by its string. It is an open-addressing
// table beside the list of tokens, not a map, because loading is mostly this:
// the half million merges of Gemma ask for three tokens each.
type tokenIndex struct {
	seed  maphash.Seed
	slots []indexSlot
	count int
}

type indexSlot struct {
	tag uint32 // bits of the hash that do not choose the slot
	id  int32  // -1: free
}

func newTokenIndex(tokens int) *tokenIndex {
	size := 16
	for size < 2*tokens {
		size *= 2
	}
	x := &tokenIndex{seed: maphash.MakeSeed()}
	x.reset(size)
	return x
}

func (x *tokenIndex) reset(size int) {
	x.slots = make([]indexSlot, size)
	for i := range x.slots {
		x.slots[i].id = -1
	}
}

// slot is where token is, or where it would go; tokens are the strings by id.
func (x *tokenIndex) slot(token string, tokens []string) (*indexSlot, uint32) {
	h := maphash.String(x.seed, token)
	tag, mask := uint32(h>>32), uint64(len(x.slots)-1)
	for i := h & mask; ; i = (i + 1) & mask {
		if s := &x.slots[i]; s.id < 0 || s.tag == tag && tokens[s.id] == token {
			return s, tag
		}
	}
}

// get returns the id of token, -1 if there is none.
func (x *tokenIndex) get(token string, tokens []string) (int32, bool) {
	s, _ := x.slot(token, tokens)
	return s.id, s.id >= 0
}

// lookup is a token to be found, and what was found.
type lookup struct {
	token string
	id    int32 // -1: none
	hash  uint64
}

// getAll looks many tokens up. Each loop does one step for all of them, so that
// their cache misses are served at the same time.
func (x *tokenIndex) getAll(words []lookup, tokens []string) {
	mask := uint64(len(x.slots) - 1)
	for i := range words {
		w := &words[i]
		w.hash = maphash.String(x.seed, w.token)
	}
	for i := range words {
		w := &words[i]
		s := x.slots[w.hash&mask]
		w.id = s.id
		if s.id >= 0 && s.tag != uint32(w.hash>>32) {
			w.id = x.probe(w, mask)
		}
	}
	for i := range words {
		w := &words[i]
		if w.id >= 0 && tokens[w.id] != w.token {
			w.id, _ = x.get(w.token, tokens) // two tokens with one tag
		}
	}
}

// probe goes on behind the first slot until the tag agrees.
func (x *tokenIndex) probe(w *lookup, mask uint64) int32 {
	for i := (w.hash + 1) & mask; ; i = (i + 1) & mask {
		if s := x.slots[i]; s.id < 0 || s.tag == uint32(w.hash>>32) {
			return s.id
		}
	}
}

// put adds a token, or returns false if it is there already.
func (x *tokenIndex) put(token string, id int32, tokens []string) bool {
	if 2*(x.count+1) > len(x.slots) {
		old := x.slots
		x.reset(2 * len(old))
		for _, s := range old {
			if s.id >= 0 {
				at, _ := x.slot(tokens[s.id], tokens)
				*at = s
			}
		}
	}
	s, tag := x.slot(token, tokens)
	if s.id >= 0 {
		return false
	}
	*s = indexSlot{tag, id}
	x.count++
	return true
}

// text looks at bytes as a string, for as long as they do not change.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
