package speculate

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/smelt-go/smelt/tokenizer"
)

// Prompt is a text to continue.
type Prompt struct {
	Text string
	IDs  []int32
}

// ReadPrompts reads a file of prompts: text with a prompt a line, or a JSON list
// whose elements are texts or lists of token ids. With cut > 0 the file is one
// text, which is cut into prompts of so many tokens; a rest is dropped. tok may
// be nil for ids.
func ReadPrompts(path string, tok *tokenizer.Tokenizer, cut int) ([]Prompt, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("speculate: %s: %s", path, fmt.Sprintf(format, args...))
	}
	encode := func(text string) ([]int32, error) {
		if tok == nil {
			return nil, fail("texts need a tokenizer, and the target has none (give lists of token ids)")
		}
		ids, err := tok.Encode(text, tokenizer.EncodeOptions{AddSpecial: true})
		if err != nil {
			return nil, fail("%s: %v", quote(text), err)
		}
		return ids, nil
	}
	var out []Prompt
	if cut > 0 {
		ids, err := encode(string(data))
		if err != nil {
			return nil, err
		}
		// What the tokenizer puts before every text goes before every piece.
		empty, err := encode("")
		if err != nil {
			return nil, err
		}
		prefix := empty
		for i, id := range prefix {
			if i >= len(ids) || ids[i] != id {
				prefix = prefix[:i]
				break
			}
		}
		size := cut - len(prefix)
		if size < 1 {
			return nil, fail("prompts of %d tokens have no room for text", cut)
		}
		for rest := ids[len(prefix):]; len(rest) >= size; rest = rest[size:] {
			p := append(append([]int32{}, prefix...), rest[:size]...)
			out = append(out, Prompt{tok.Decode(rest[:size], tokenizer.DecodeOptions{SkipSpecial: true}), p})
		}
	} else if strings.HasPrefix(strings.TrimSpace(string(data)), "[") {
		var list []json.RawMessage
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fail("not a JSON list: %v", err)
		}
		for i, raw := range list {
			var p Prompt
			if json.Unmarshal(raw, &p.IDs) == nil {
				p.Text = fmt.Sprintf("ids %v", p.IDs)
			} else if json.Unmarshal(raw, &p.Text) == nil {
				if p.IDs, err = encode(p.Text); err != nil {
					return nil, err
				}
			} else {
				return nil, fail("element %d is neither a text nor a list of token ids", i)
			}
			out = append(out, p)
		}
	} else {
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\r\n")
			if strings.TrimSpace(line) == "" {
				continue
			}
			ids, err := encode(line)
			if err != nil {
				return nil, err
			}
			out = append(out, Prompt{line, ids})
		}
	}
	if len(out) == 0 {
		return nil, fail("no prompts")
	}
	return out, nil
}
