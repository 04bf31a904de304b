package tokenizer

import "bytes"

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

// mergeReader collects merges and looks their tokens up many at a time: one
// lookup waits for memory thrice, and the waits of independent ones overlap.
type mergeReader struct {
	s      *scanner
	v      *vocabulary
	prefix string
	table  *mergeTable
	rank   int32 // of the first pair of the batch

	arena   []byte
	pairs   []mergePair
	words   []lookup        // left, right, left, right, …, then the joined tokens
	joined  [mergeBatch]int // where in words
	scratch []byte
}

// mergePair is a merge as the file spells it: left and right are side by side
// in the arena.
type mergePair struct {
	start, mid, end int
	pos             int // behind it in the file
}

const mergeBatch = 256

// item reads one merge.
func (r *mergeReader) item() error {
	s := r.s
	p := mergePair{start: len(r.arena)}
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
		r.arena = append(append(r.arena, both[:i]...), both[i+1:]...)
		p.mid = p.start + i
	case '[':
		part := 0
		err := s.array(func() error {
			b, err := s.string()
			if part++; part <= 2 {
				p.mid = len(r.arena)
				r.arena = append(r.arena, b...)
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
	p.end, p.pos = len(r.arena), s.pos
	r.pairs = append(r.pairs, p)
	if len(r.pairs) == mergeBatch {
		return r.resolve()
	}
	return nil
}

// next is the rank of the merge that is being read.
func (r *mergeReader) next() int32 { return r.rank + int32(len(r.pairs)) }

// resolve turns the collected pairs into merges.
func (r *mergeReader) resolve() error {
	r.words = r.words[:0]
	for _, p := range r.pairs {
		r.words = append(r.words, lookup{token: text(r.arena[p.start:p.mid])}, lookup{token: text(r.arena[p.mid:p.end])})
	}
	// Merges that make the same token are often neighbours.
	if cap(r.scratch) < len(r.arena) {
		r.scratch = make([]byte, 0, 2*len(r.arena)) // it must not move: words point into it
	}
	r.scratch = r.scratch[:0]
	last := ""
	for i, p := range r.pairs {
		word := text(r.arena[p.start:p.end])
		if right := r.arena[p.mid:p.end]; len(r.prefix) > 0 && len(right) >= len(r.prefix) {
			at := len(r.scratch)
			r.scratch = append(append(r.scratch, r.arena[p.start:p.mid]...), right[len(r.prefix):]...)
			word = text(r.scratch[at:])
		}
		if i == 0 || word != last {
			r.words = append(r.words, lookup{token: word})
		}
		r.joined[i], last = len(r.words)-1, word
	}
	r.v.index.getAll(r.words, r.v.tokens)
	for i, p := range r.pairs {
		a, b, c := &r.words[2*i], &r.words[2*i+1], &r.words[r.joined[i]]
		r.s.pos, p.pos = p.pos, r.s.pos // for the error
		for _, w := range []*lookup{a, b} {
			if w.id < 0 {
				return r.s.errorf("merge %d: token %q is not in the vocabulary", r.rank, w.token)
			}
		}
		if len(b.token) < len(r.prefix) {
			return r.s.errorf("merge %d: token %q lacks the prefix %q", r.rank, b.token, r.prefix)
		}
		if c.id < 0 {
			return r.s.errorf("merge %d: token %q is not in the vocabulary", r.rank, c.token)
		}
		r.s.pos = p.pos
		r.table.put(a.id, b.id, merge{r.rank, c.id})
		r.rank++
	}
	r.pairs, r.arena = r.pairs[:0], r.arena[:0]
	return nil
}
