package tokenizer

import (
	"bytes"
	"fmt"
)

// vocabulary maps token strings to ids and back.
type vocabulary struct {
	ids    map[string]int32
	tokens []string // by id; "" where there is none
	used   []bool   // by id
}

// idSlack bounds the holes in the ids, so that a short hostile file cannot
// ask for a table of 2^31 rows.
const idSlack = 1 << 20

func (v *vocabulary) add(token string, id int32) error {
	for int(id) >= len(v.tokens) {
		v.tokens = append(v.tokens, "")
		v.used = append(v.used, false)
	}
	if v.used[id] {
		return fmt.Errorf("tokens %q and %q both have id %d", v.tokens[id], token, id)
	}
	if _, ok := v.ids[token]; ok {
		return fmt.Errorf("duplicate token %q", token)
	}
	v.ids[token], v.tokens[id], v.used[id] = id, token, true
	return nil
}

func (v *vocabulary) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(v.tokens) || !v.used[id] {
		return "", false
	}
	return v.tokens[id], true
}

// readVocab reads the vocab object at the scanner's position.
func readVocab(s *scanner) (*vocabulary, error) {
	// Token strings share one arena: a quarter of a million small strings
	// cost more in allocation than in bytes.
	type entry struct{ end, id int32 }
	var (
		arena   []byte
		entries []entry
	)
	err := s.object(func(key []byte) error {
		arena = append(arena, key...)
		id, err := s.id()
		entries = append(entries, entry{int32(len(arena)), id})
		return err
	})
	if err != nil {
		return nil, err
	}
	v := &vocabulary{
		ids:    make(map[string]int32, len(entries)),
		tokens: make([]string, 0, len(entries)),
		used:   make([]bool, 0, len(entries)),
	}
	all, start := string(arena), int32(0)
	top := int32(len(entries)) + idSlack
	for _, e := range entries {
		if e.id >= top {
			return nil, fmt.Errorf("token %q has id %d, far beyond the %d tokens there are", all[start:e.end], e.id, len(entries))
		}
		start = e.end
	}
	start = 0
	for _, e := range entries {
		if err := v.add(all[start:e.end], e.id); err != nil {
			return nil, err
		}
		start = e.end
	}
	return v, nil
}

// readMerges reads the merges array, pairs in either spelling: ["a", "b"] or
// "a b". prefix is the model's continuing_subword_prefix, which a right part
// carries and the joined token does not.
func readMerges(s *scanner, v *vocabulary, prefix string) (*mergeTable, error) {
	table := newMergeTable(len(v.ids))
	rank := int32(0)
	var left, joined []byte
	err := s.array(func() error {
		var right []byte
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
				return s.errorf("merge %d: %q is not two tokens separated by one space", rank, both)
			}
			left, right = append(left[:0], both[:i]...), both[i+1:]
		case '[':
			part := 0
			err := s.array(func() error {
				b, err := s.string()
				switch part {
				case 0:
					left = append(left[:0], b...)
				case 1:
					joined = append(joined[:0], b...)
				}
				part++
				return err
			})
			if err != nil {
				return err
			}
			if part != 2 {
				return s.errorf("merge %d has %d tokens, not 2", rank, part)
			}
			right = joined
		default:
			return s.errorf("merge %d is neither a string nor a pair", rank)
		}
		a, ok := v.ids[string(left)]
		if !ok {
			return s.errorf("merge %d: token %q is not in the vocabulary", rank, left)
		}
		b, ok := v.ids[string(right)]
		if !ok {
			return s.errorf("merge %d: token %q is not in the vocabulary", rank, right)
		}
		if len(right) < len(prefix) {
			return s.errorf("merge %d: token %q lacks the prefix %q", rank, right, prefix)
		}
		left = append(left, right[len(prefix):]...)
		c, ok := v.ids[string(left)]
		if !ok {
			return s.errorf("merge %d: token %q is not in the vocabulary", rank, left)
		}
		table.put(a, b, merge{rank, c})
		rank++
		return nil
	})
	return table, err
}
