package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
)

// Tokenizer is a loaded tokenizer.json. It does not change after loading and
// may be used from several goroutines.
type Tokenizer struct {
	name string

	vocab    *vocabulary
	model    *bpe
	added    map[int32]*addedToken
	addedIDs map[string]int32
	specials map[string]bool

	rawTokens        *tokenFinder // found in the text as it is
	normalizedTokens *tokenFinder // found in the normalized text

	normalize normalizer   // nil: none
	pre       preTokenizer // nil: none
	post      template     // nil: none
	decode    decoder

	truncation *Truncation
	padding    *Padding
}

// EncodeOptions are the options of Encode.
type EncodeOptions struct {
	// AddSpecial lets the post-processor add its special tokens, such as
	// <bos> in front. Special tokens that are written out in the text are
	// recognised either way.
	AddSpecial bool
}

// DecodeOptions are the options of Decode and NewStream.
type DecodeOptions struct {
	// SkipSpecial leaves special tokens out of the text.
	SkipSpecial bool
}

// Load reads a tokenizer.json, or the one in a directory.
func Load(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return parseOwn(path, data)
}

// Encode returns the ids of text.
//
// It fails if text is not valid UTF-8, if merges of the file are wrong (see
// Parse), or if text has a character that the
// vocabulary lacks while the model's unknown token is missing too. A model
// without an unknown token, like the reference, drops such a character.
func (t *Tokenizer) Encode(text string, opts EncodeOptions) ([]int32, error) {
	if i := validUTF8(text); i >= 0 {
		return nil, fmt.Errorf("tokenizer: %s: text is not valid UTF-8 at byte %d", t.name, i)
	}
	w := &workspace{}
	if text != "" {
		var err error
		if w.merges, err = t.model.merges(); err != nil {
			return nil, fmt.Errorf("tokenizer: %s: %w", t.name, err)
		}
		for _, p := range t.pieces(text) {
			if p.id != notAdded {
				w.out = append(w.out, p.id)
				continue
			}
			if err := t.model.encode(w, p.text); err != nil {
				return nil, fmt.Errorf("tokenizer: %s: %w", t.name, err)
			}
		}
	}
	return t.post.apply(w.out, opts.AddSpecial), nil
}

// pieces cuts text into words and added tokens.
func (t *Tokenizer) pieces(text string) []piece {
	pieces := t.rawTokens.cut([]piece{{text, notAdded, true}})
	if t.normalize != nil {
		pieces = each(pieces, func(out []piece, p piece) []piece {
			if p.text = t.normalize(p.text); p.text != "" {
				out = append(out, p)
			}
			return out
		})
	}
	pieces = t.normalizedTokens.cut(pieces)
	if t.pre != nil {
		pieces = t.pre.cut(pieces)
	}
	return pieces
}

// Decode returns the text of ids. Ids that are no token are left out, as the
// reference does; bytes that are not UTF-8 become U+FFFD.
func (t *Tokenizer) Decode(ids []int32, opts DecodeOptions) string {
	p := t.decode.start()
	for _, id := range ids {
		if token, ok := t.spelling(id, opts.SkipSpecial); ok {
			p.push(token)
		}
	}
	p.flush()
	return p.take()
}

// spelling is the string that id gives the decoder, false for none.
func (t *Tokenizer) spelling(id int32, skipSpecial bool) (string, bool) {
	var token string
	if a, ok := t.added[id]; ok {
		token = a.spelling
	} else if token, ok = t.vocab.token(id); !ok {
		return "", false
	}
	return token, !skipSpecial || !t.specials[token]
}

// VocabSize is one more than the largest id: the number of rows an embedding
// needs at least.
func (t *Tokenizer) VocabSize() int {
	n := len(t.vocab.tokens)
	for id := range t.added {
		n = max(n, int(id)+1)
	}
	return n
}

// TokenID returns the id of a token by its exact spelling in the file.
func (t *Tokenizer) TokenID(token string) (int32, bool) {
	if id, ok := t.addedIDs[token]; ok {
		return id, true
	}
	id, ok := t.vocab.id(token)
	return id, ok
}

// Token returns the spelling of id in the file, which is not always its text:
// see Decode.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if a, ok := t.added[id]; ok {
		return a.content, true
	}
	return t.vocab.token(id)
}

// IsSpecial says whether id is a token that SkipSpecial leaves out.
func (t *Tokenizer) IsSpecial(id int32) bool {
	a, ok := t.added[id]
	return ok && a.special
}

// Truncation is the "truncation" setting of a file: see the package
// documentation for why Encode does not apply it.
type Truncation struct {
	MaxLength int    // in tokens, special ones included
	Direction string // "Left" or "Right": the end that is cut off
}

// Padding is the "padding" setting of a file, which Encode does not apply.
type Padding struct {
	ID     int32  // pad_id
	Token  string // pad_token
	Length int    // the fixed length, 0 for "as long as the longest"
}

// Truncation returns the file's truncation setting, nil if it has none.
func (t *Tokenizer) Truncation() *Truncation { return t.truncation }

// Padding returns the file's padding setting, nil if it has none.
func (t *Tokenizer) Padding() *Padding { return t.padding }

// Stream decodes ids one at a time. The concatenation of what Push and Flush
// return is what Decode returns for the same ids, and no part ends inside a
// character or inside a run of byte tokens.
type Stream struct {
	t    *Tokenizer
	skip bool
	pass *decoding
}

// NewStream returns a Stream at the start of a text.
func (t *Tokenizer) NewStream(opts DecodeOptions) *Stream {
	return &Stream{t: t, skip: opts.SkipSpecial, pass: t.decode.start()}
}

// Push takes the next id and returns the text that is certain by now, which
// may be none.
func (s *Stream) Push(id int32) string {
	if token, ok := s.t.spelling(id, s.skip); ok {
		s.pass.push(token)
	}
	return s.pass.take()
}

// Flush returns what is left and starts over for a new text.
func (s *Stream) Flush() string {
	s.pass.flush()
	rest := s.pass.take()
	s.pass = s.t.decode.start()
	return rest
}
