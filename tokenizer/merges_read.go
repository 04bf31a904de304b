package tokenizer

import (
	"bytes"
	"unicode/utf8"
)

// readMerges reads the merges array, pairs in either spelling: ["a", "b"] or
// "a b". prefix is the model's continuing_subword_prefix, which a right part
// carries and the joined token does not.
func readMerges(s *scanner, v *vocabulary, prefix string) (*mergeTable, error) {
	r := &mergeReader{s: s, v: v, prefix: prefix, table: newMergeTable(2 * v.count())}
	if err := s.array(r.item); err != nil {
		// What is wrong with an earlier merge comes first.
		if e := r.resolve(); e != nil {
			return nil, e
		}
		return nil, err
	}
	return r.table, r.resolve()
}

// skimMerges checks the form of the merges array, and the tokens of the first
// of them: what is wrong with all is found early.
func skimMerges(s *scanner, v *vocabulary, prefix string) error {
	r := &mergeReader{s: s, v: v, prefix: prefix, table: newMergeTable(mergeBatch), skim: true}
	err := s.array(r.item)
	if e := r.resolve(); e != nil {
		return e
	}
	return err
}

// mergeReader collects merges and looks their tokens up many at a time: one
// lookup waits for memory thrice, and the waits of independent ones overlap.
type mergeReader struct {
	s      *scanner
	v      *vocabulary
	prefix string
	table  *mergeTable
	skim   bool  // do not look up more than a batch
	rank   int32 // of the first pair of the batch, or of the next one to skip

	pairs  []mergePair
	words  []lookup        // left, right, left, right, …, then the joined tokens
	joined [mergeBatch]int // where in words
	// Bytes of tokens that the file does not have as they are. Where it grows
	// and moves, words go on pointing to the old place.
	arena []byte
}

// mergePair is a merge as the file spells it.
type mergePair struct {
	left, right string
	pos         int // behind it in the file
}

const mergeBatch = 256

// item reads one merge.
func (r *mergeReader) item() error {
	s := r.s
	var p mergePair
	switch s.peek() {
	case '"':
		both, err := s.string()
		if err != nil {
			return err
		}
		if bytes.HasPrefix(both, []byte("#version")) {
			return nil
		}
		i := bytes.IndexByte(both, ' ')
		if i < 0 || bytes.IndexByte(both[i+1:], ' ') >= 0 {
			return s.errorf("merge %d: %q is not two tokens separated by one space", r.next(), both)
		}
		p.left, p.right = r.keep(both[:i]), r.keep(both[i+1:])
	case '[':
		if r.plain(&p) {
			break
		}
		part := 0
		err := s.array(func() error {
			b, err := s.string()
			if part++; part <= 2 {
				p.left, p.right = p.right, r.keep(b)
			}
			return err
		})
		if err != nil {
			return err
		}
		if part != 2 {
			return s.errorf("merge %d has %d tokens, not 2", r.next(), part)
		}
	default:
		return s.errorf("merge %d is neither a string nor a pair", r.next())
	}
	if r.skim && len(r.table.merges) == mergeBatch {
		r.arena = r.arena[:0]
		r.rank++
		return nil
	}
	p.pos = s.pos
	r.pairs = append(r.pairs, p)
	if len(r.pairs) == mergeBatch {
		return r.resolve()
	}
	return nil
}

// plain reads ["a","b"], a space after the comma or none, if there is nothing
// to unescape, which is the form of nearly all; for any other it returns false
// and stays where it is. Whether the strings are UTF-8 it leaves open: tokens
// of the vocabulary are.
func (r *mergeReader) plain(p *mergePair) bool {
	d, at := r.s.data, r.s.pos+1
	for _, word := range []*string{&p.left, &p.right} {
		if at >= len(d) || d[at] != '"' {
			return false
		}
		at++
		start := at
		for at < len(d) && d[at] != '"' {
			if d[at] == '\\' || d[at] < 0x20 {
				return false
			}
			at++
		}
		*word = text(d[start:at])
		at++
		if word == &p.left {
			if at >= len(d) || d[at] != ',' {
				return false
			}
			at++
			if at < len(d) && d[at] == ' ' {
				at++
			}
		}
	}
	if at >= len(d) || d[at] != ']' {
		return false
	}
	r.s.pos = at + 1
	return true
}

// keep copies what the scanner will overwrite.
func (r *mergeReader) keep(b []byte) string {
	at := len(r.arena)
	r.arena = append(r.arena, b...)
	return text(r.arena[at:])
}

// next is the rank of the merge that is being read.
func (r *mergeReader) next() int32 { return r.rank + int32(len(r.pairs)) }

// resolve turns the collected pairs into merges.
func (r *mergeReader) resolve() error {
	r.words = r.words[:0]
	for _, p := range r.pairs {
		r.words = append(r.words, lookup{token: p.left}, lookup{token: p.right})
	}
	last, first := "", true
	for i, p := range r.pairs {
		tail := p.right[min(len(r.prefix), len(p.right)):]
		// Merges that make the same token are often neighbours.
		if n := len(p.left); first || len(last) != n+len(tail) || last[:n] != p.left || last[n:] != tail {
			at := len(r.arena)
			r.arena = append(append(r.arena, p.left...), tail...)
			last, first = text(r.arena[at:]), false
			r.words = append(r.words, lookup{token: last})
		}
		r.joined[i] = len(r.words) - 1
	}
	r.v.index.getAll(r.words, r.v.tokens)
	end := r.s.pos
	for i, p := range r.pairs {
		a, b, c := &r.words[2*i], &r.words[2*i+1], &r.words[r.joined[i]]
		r.s.pos = p.pos // for the error
		if err := r.known(a, b); err != nil {
			return err
		}
		if len(b.token) < len(r.prefix) {
			return r.s.errorf("merge %d: token %q lacks the prefix %q", r.rank, b.token, r.prefix)
		}
		if err := r.known(c); err != nil {
			return err
		}
		r.table.add(a.id, b.id, c.id)
		r.rank++
	}
	r.s.pos = end
	r.pairs, r.arena = r.pairs[:0], r.arena[:0]
	return nil
}

func (r *mergeReader) known(words ...*lookup) error {
	for _, w := range words {
		switch {
		case w.id >= 0:
		case !utf8.ValidString(w.token):
			return r.s.errorf("string is not valid UTF-8")
		default:
			return r.s.errorf("merge %d: token %q is not in the vocabulary", r.rank, w.token)
		}
	}
	return nil
}
