package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// bpe is a byte pair encoding model (Sennrich et al. 2016): a word starts as
// one symbol a character, and the best-ranked pair of neighbours is joined
// until none is left.
type bpe struct {
	vocab  *vocabulary
	merges func() (*mergeTable, error) // read when they are first needed

	prefix string // continuing_subword_prefix
	suffix string // end_of_word_suffix

	unk    string // unk_token
	hasUnk bool
	// fuseUnk makes one unknown token of a run of unknown characters.
	fuseUnk bool

	byteFallback bool
	byteIDs      [256]int32 // <0xNN>, -1 where the vocabulary has none

	// ignoreMerges takes a word that is itself a token as it is, even where
	// the merges would not reach it.
	ignoreMerges bool

	// runes has the ids of the single-character tokens.
	runes map[rune]int32
	// lowRunes is runes for the characters below its length, -1 for none.
	lowRunes [512]int32
}

// symbol is a node of the doubly linked list a word is while it is merged.
type symbol struct {
	id         int32
	prev, next int32 // -1 at the ends
	live       bool
}

// candidate is a merge that was possible at pos when it was queued.
type candidate struct {
	rank, pos int32
	id        int32 // of the joined symbol
}

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

// workspace is the scratch memory of one Encode.
type workspace struct {
	merges  *mergeTable
	symbols []symbol
	queue   []candidate
	// words remembers the ids of the words of this text, as ranges of out.
	words map[string][2]int32
	out   []int32
}

// maxRemembered is the length in bytes of the longest word that is worth
// remembering.
const maxRemembered = 48

// rememberedWords bounds the memory of the words of one text.
const rememberedWords = 1 << 16

// index builds the lookups that derive from the vocabulary.
func (m *bpe) index() {
	m.runes = map[rune]int32{}
	for i := range m.lowRunes {
		m.lowRunes[i] = -1
	}
	for id, token := range m.vocab.tokens {
		r, width := utf8.DecodeRuneInString(token)
		if width == 0 || width != len(token) {
			continue
		}
		m.runes[r] = int32(id)
		if int(r) < len(m.lowRunes) {
			m.lowRunes[r] = int32(id)
		}
	}
	for b := range m.byteIDs {
		id, ok := m.vocab.id(fmt.Sprintf("<0x%02X>", b))
		if !ok {
			id = -1
		}
		m.byteIDs[b] = id
	}
}

// encode appends the ids of a word to w.out.
func (m *bpe) encode(w *workspace, word string) error {
	if m.ignoreMerges {
		if id, ok := m.vocab.id(word); ok {
			w.out = append(w.out, id)
			return nil
		}
	}
	if len(word) > maxRemembered {
		return m.encodeNew(w, word)
	}
	if at, ok := w.words[word]; ok {
		w.out = append(w.out, w.out[at[0]:at[1]]...)
		return nil
	}
	start := len(w.out)
	err := m.encodeNew(w, word)
	if len(w.words) < rememberedWords {
		if w.words == nil {
			w.words = map[string][2]int32{}
		}
		w.words[word] = [2]int32{int32(start), int32(len(w.out))}
	}
	return err
}

func (m *bpe) encodeNew(w *workspace, word string) error {
	w.symbols = w.symbols[:0]
	if err := m.split(w, word); err != nil {
		return err
	}
	m.join(w)
	if len(w.symbols) == 0 {
		return nil
	}
	for i := int32(0); i >= 0; i = w.symbols[i].next {
		w.out = append(w.out, w.symbols[i].id)
	}
	return nil
}

func (w *workspace) push(id int32) {
	n := int32(len(w.symbols))
	if n > 0 {
		w.symbols[n-1].next = n
	}
	w.symbols = append(w.symbols, symbol{id: id, prev: n - 1, next: -1, live: true})
}

// split makes the initial symbols of a word.
func (m *bpe) split(w *workspace, word string) error {
	affixed := m.prefix != "" || m.suffix != ""
	unknown := 0 // unknown tokens waiting to be written
	flush := func() {
		for ; unknown > 0; unknown-- {
			id, _ := m.vocab.id(m.unk)
			w.push(id)
		}
	}
	for i := 0; i < len(word); {
		r, width := rune(word[i]), 1
		if r >= utf8.RuneSelf {
			r, width = utf8.DecodeRuneInString(word[i:])
		}
		chars := word[i : i+width]
		id := int32(-1)
		switch {
		case affixed:
			if i > 0 {
				chars = m.prefix + chars
			}
			if i+width == len(word) {
				chars += m.suffix
			}
			if known, ok := m.vocab.id(chars); ok {
				id = known
			}
		case int(r) < len(m.lowRunes):
			id = m.lowRunes[r]
		default:
			if known, ok := m.runes[r]; ok {
				id = known
			}
		}
		i += width
		if id >= 0 {
			flush()
			w.push(id)
			continue
		}
		if m.byteFallback && m.spellable(chars) {
			// A waiting unknown token stays behind these bytes: that is
			// what the reference does.
			for j := range len(chars) {
				w.push(m.byteIDs[chars[j]])
			}
			continue
		}
		if !m.hasUnk {
			continue
		}
		if _, ok := m.vocab.id(m.unk); !ok {
			return fmt.Errorf("character %q is not in the vocabulary, and neither is the unknown token %q", r, m.unk)
		}
		if unknown > 0 && !m.fuseUnk {
			flush()
		}
		unknown = 1
	}
	flush()
	return nil
}

// spellable says whether there is a byte token for every byte of s.
func (m *bpe) spellable(s string) bool {
	for i := range len(s) {
		if m.byteIDs[s[i]] < 0 {
			return false
		}
	}
	return true
}

// join merges the symbols. The queue is a binary heap, so a word of n
// characters takes O(n log n) however long it is.
func (m *bpe) join(w *workspace) {
	if len(w.symbols) < 2 {
		return
	}
	s := w.symbols
	w.queue = w.queue[:0]
	for i := range len(s) - 1 {
		if to, ok := w.merges.get(s[i].id, s[i+1].id); ok {
			w.enqueue(candidate{to.rank, int32(i), to.id})
		}
	}
	for len(w.queue) > 0 {
		top := w.dequeue()
		left := &s[top.pos]
		if !left.live || left.next < 0 {
			continue
		}
		right := &s[left.next]
		// The neighbours may have changed since this was queued.
		if to, ok := w.merges.get(left.id, right.id); !ok || to.id != top.id {
			continue
		}
		left.id = top.id
		left.next = right.next
		right.live = false
		if left.next >= 0 {
			s[left.next].prev = top.pos
		}
		if left.prev >= 0 {
			if to, ok := w.merges.get(s[left.prev].id, left.id); ok {
				w.enqueue(candidate{to.rank, left.prev, to.id})
			}
		}
		if left.next >= 0 {
			if to, ok := w.merges.get(left.id, s[left.next].id); ok {
				w.enqueue(candidate{to.rank, top.pos, to.id})
			}
		}
	}
}

func (w *workspace) enqueue(c candidate) {
	w.queue = append(w.queue, c)
	q, i := w.queue, len(w.queue)-1
	for i > 0 {
		up := (i - 1) / 2
		if !c.before(q[up]) {
			break
		}
		q[i] = q[up]
		i = up
	}
	q[i] = c
}

func (w *workspace) dequeue() candidate {
	q := w.queue
	top, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	w.queue = q
	if len(q) == 0 {
		return top
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(q) {
			break
		}
		if down+1 < len(q) && q[down+1].before(q[down]) {
			down++
		}
		if !q[down].before(last) {
			break
		}
		q[i] = q[down]
		i = down
	}
	q[i] = last
	return top
}
