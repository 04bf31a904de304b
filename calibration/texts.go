package calibration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/smelt-go/smelt/tokenizer"
)

// Text is one document.
type Text struct {
	Domain string `json:"domain"`
	Text   string `json:"text"`
}

// ReadTexts reads a file of UTF-8: plain text, which is one document, or JSON
// lines {"domain": …, "text": …}, if it begins with {.
func ReadTexts(file string) ([]Text, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	texts, err := ParseTexts(data)
	if err != nil {
		return nil, fmt.Errorf("calibration: %s: %w", file, err)
	}
	return texts, nil
}

// ParseTexts is ReadTexts of the contents of a file.
func ParseTexts(data []byte) ([]Text, error) { return parse(data, false) }

// ParseDomains is ParseTexts where every text must have a domain: that of plain
// text is "text", and what begins with { must be JSON lines.
func ParseDomains(data []byte) ([]Text, error) { return parse(data, true) }

func parse(data []byte, domains bool) ([]Text, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("is not UTF-8 (a binary file?)")
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("is empty")
	}
	switch lines := bytes.TrimSpace(data)[0] == '{'; {
	case domains && !lines:
		return []Text{{Domain: "text", Text: string(data)}}, nil
	case !domains && (!lines || !json.Valid(firstLine(data))):
		return []Text{{Text: string(data)}}, nil
	}
	var texts []Text
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var t Text
		if err := d.Decode(&t); err != nil {
			return nil, fmt.Errorf("line %d: %w (want {\"domain\": …, \"text\": …})", n, err)
		}
		if domains && (t.Domain == "" || strings.TrimSpace(t.Text) == "") {
			return nil, fmt.Errorf("line %d has no domain or no text", n)
		}
		if t.Text == "" {
			return nil, fmt.Errorf("line %d has no text", n)
		}
		texts = append(texts, t)
	}
	return texts, lines.Err()
}

func firstLine(data []byte) []byte {
	line, _, _ := bytes.Cut(bytes.TrimSpace(data), []byte("\n"))
	return line
}

// DefaultWindow and DefaultWindows are what calibration takes unless told
// otherwise.
const (
	DefaultWindow  = 512
	DefaultWindows = 32
)

// Windows tokenizes texts and cuts the tokens into at most count windows of size
// tokens, each with what the tokenizer puts in front of a text (<bos>). Documents
// of a domain are joined; domains take turns, so that each has about the same
// share while it lasts. One domain is cut from its start. What is too short for a
// single window is an error.
func Windows(tok *tokenizer.Tokenizer, texts []Text, size, count int) ([][]int32, error) {
	prefix, err := tok.Encode("", tokenizer.EncodeOptions{AddSpecial: true})
	if err != nil {
		return nil, err
	}
	body := size - len(prefix)
	if body < 1 || count < 1 {
		return nil, fmt.Errorf("calibration: %d windows of %d tokens leave no room for a text", count, size)
	}
	var order []string
	tokens := map[string][]int32{}
	for _, t := range texts {
		if _, ok := tokens[t.Domain]; !ok {
			order = append(order, t.Domain)
		}
		if len(tokens[t.Domain]) >= count*body {
			continue
		}
		ids, err := tok.Encode(t.Text, tokenizer.EncodeOptions{})
		if err != nil {
			return nil, fmt.Errorf("calibration: %w", err)
		}
		tokens[t.Domain] = append(tokens[t.Domain], ids...)
	}
	var windows [][]int32
	for more := true; more; {
		more = false
		for _, d := range order {
			if ids := tokens[d]; len(ids) >= body && len(windows) < count {
				windows = append(windows, append(append([]int32(nil), prefix...), ids[:body]...))
				tokens[d] = ids[body:]
				more = true
			}
		}
	}
	if len(windows) == 0 {
		total := 0
		for _, ids := range tokens {
			total += len(ids)
		}
		return nil, fmt.Errorf("calibration: the text has %d tokens, a window takes %d (give a longer text)", total, body)
	}
	return windows, nil
}
