package tokenizer

import "fmt"

// vocabulary maps token strings to ids and back.
type vocabulary struct {
	index  *tokenIndex
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
	if !v.index.put(token, id, v.tokens) {
		return fmt.Errorf("duplicate token %q", token)
	}
	v.tokens[id], v.used[id] = token, true
	return nil
}

// count is the number of tokens.
func (v *vocabulary) count() int { return v.index.count }

func (v *vocabulary) id(token string) (int32, bool) { return v.index.get(token, v.tokens) }

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
	// A member takes some ten bytes beside its token.
	room := (len(s.data) - s.pos) / 64
	entries = make([]entry, 0, room)
	arena = make([]byte, 0, 8*room)
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
		index:  newTokenIndex(len(entries)),
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
