package sensitivity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/tokenizer"
)

// Text is a piece of calibration text.
type Text = calibration.Text

// ParseTexts reads calibration text: JSON lines of {"domain": …, "text": …}, or
// plain UTF-8, which is one domain called text.
func ParseTexts(data []byte) ([]Text, error) {
	texts, err := calibration.ParseDomains(data)
	if err != nil {
		return nil, fmt.Errorf("sensitivity: the calibration text: %w", err)
	}
	return texts, nil
}

// TextOptions say how many tokens of a text are used.
type TextOptions struct {
	Sequences int // how many
	Tokens    int // of each
	Seed      uint64
}

// Sequences cuts texts into sequences of tokens, each beginning with the tokens
// that the tokenizer puts in front of a text. Domains take turns, so that each
// gets its share whatever its size; within a domain, pieces come in an order
// drawn from the seed. warnings tell what may be wrong with a text.
func Sequences(tok *tokenizer.Tokenizer, texts []Text, o TextOptions) (sequences [][]int32, c *Calibration, warnings []string, err error) {
	if o.Sequences < 1 || o.Tokens < 2 {
		return nil, nil, nil, fmt.Errorf("sensitivity: %d sequences of %d tokens (want at least 1 of 2)", o.Sequences, o.Tokens)
	}
	prefix, err := tok.Encode("", tokenizer.EncodeOptions{AddSpecial: true})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("sensitivity: %w", err)
	}
	body := o.Tokens - len(prefix)
	if body < 1 {
		return nil, nil, nil, fmt.Errorf("sensitivity: %d tokens leave no room after %d special ones", o.Tokens, len(prefix))
	}
	pieces := map[string][][]int32{}
	var domains []string
	for _, t := range texts {
		ids, err := tok.Encode(t.Text, tokenizer.EncodeOptions{})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("sensitivity: calibration text of domain %s: %w", t.Domain, err)
		}
		if !slices.Contains(domains, t.Domain) {
			domains = append(domains, t.Domain)
		}
		for ; len(ids) >= body; ids = ids[body:] {
			pieces[t.Domain] = append(pieces[t.Domain], append(slices.Clone(prefix), ids[:body]...))
		}
	}
	slices.Sort(domains)
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	available := 0
	for _, d := range domains {
		p := pieces[d]
		rng.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
		available += len(p)
	}
	if available < o.Sequences {
		return nil, nil, nil, fmt.Errorf("sensitivity: the calibration text has %d pieces of %d tokens, want %d (give more text, or fewer or shorter sequences)", available, o.Tokens, o.Sequences)
	}
	rng.Shuffle(len(domains), func(i, j int) { domains[i], domains[j] = domains[j], domains[i] })
	c = &Calibration{Sequences: o.Sequences, Tokens: o.Tokens, Seed: o.Seed, Domains: map[string]int{}}
	for turn := 0; len(sequences) < o.Sequences; turn++ {
		for _, d := range domains {
			if turn < len(pieces[d]) && len(sequences) < o.Sequences {
				sequences = append(sequences, pieces[d][turn])
				c.Domains[d]++
			}
		}
	}
	h := sha256.New()
	for _, s := range sequences {
		_ = binary.Write(h, binary.LittleEndian, int64(len(s)))
		_ = binary.Write(h, binary.LittleEndian, s)
	}
	c.SHA256 = hex.EncodeToString(h.Sum(nil))
	if len(domains) == 1 {
		warnings = append(warnings, fmt.Sprintf("the calibration text has one domain only (%s): bits will be spent on what it needs; give JSON lines of several", domains[0]))
	}
	return sequences, c, warnings, nil
}
