package conversion

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/tokenizer"
)

// ProbeHeadroom is the factor by which unseen text may exceed the range that
// the probe saw before fp16 overflows.
const ProbeHeadroom = 4

// probePieces is what the range probe reads: words, numbers, line breaks and
// code, each a token of its own in most vocabularies.
var probePieces = []string{
	"In", " ", "1", "9", "8", ",", "\n\n", " the", " if", " (", "a", "[", "i", "]", " >", "0", ";", "\n", " return", ".",
	"The", " and", "\"", "?", "x", " =", "#", "-",
}

// probeTokens is few because the largest values of the residual stream are
// those of the first token, which attention sinks into: measured on Gemma 3
// 270M and on SmolLM2, where no other of 640 tokens comes above it.
const probeTokens = 16

// probeIDs returns the token ids that the range probe runs: the one that
// starts a text, then those of probePieces, where the source has a tokenizer
// that knows them, else ids spread over the vocabulary.
func (s *Source) probeIDs(tok *tokenizer.Tokenizer) []int32 {
	cfg := s.Model.Config()
	var ids []int32
	if cfg.BOS >= 0 && cfg.BOS < cfg.Vocab {
		ids = append(ids, int32(cfg.BOS))
	}
	if tok != nil {
		for _, piece := range probePieces {
			if id, ok := tokenOf(tok, piece); ok && int(id) < cfg.Vocab {
				ids = append(ids, id)
			}
		}
	}
	n := min(probeTokens, cfg.MaxPositions)
	for x := uint32(12345); len(ids) < n; {
		x = x*1664525 + 1013904223
		ids = append(ids, int32(uint64(x)*uint64(cfg.Vocab)>>32))
	}
	return ids[:n]
}

// tokenOf finds the token for a piece of text in the spellings of vocabularies:
// with white space as it is, as in SentencePiece and as in byte-level BPE.
func tokenOf(tok *tokenizer.Tokenizer, piece string) (int32, bool) {
	for _, spell := range []*strings.Replacer{
		strings.NewReplacer(), strings.NewReplacer(" ", "\u2581"), strings.NewReplacer(" ", "\u0120", "\n", "\u010a"),
	} {
		if id, ok := tok.TokenID(spell.Replace(piece)); ok {
			return id, true
		}
	}
	return 0, false
}

// Probe is what the range probe found.
type Probe struct {
	Tokens   int     `json:"tokens"`
	Residual float32 `json:"max_abs_residual"`
	Layer    int     `json:"at_layer"` // 0 is the embedding
	// Sites are the largest magnitudes inside the layers.
	Sites map[string]float32 `json:"max_abs_inside_layers"`
	Scale float64            `json:"residual_scale"`
}

// fp16Max is the largest finite fp16 number.
const fp16Max = 65504

// probe measures how large activations grow. The scale is yet to be chosen.
//
// What overflows without being part of the stream no scale can mend: an error.
func (s *Source) probe(ctx context.Context, tok *tokenizer.Tokenizer) (*Probe, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	m, err := reference.New(s.view, config)
	if err != nil {
		return nil, err
	}
	ids := s.probeIDs(tok)
	r, err := m.RangeProbeWith(ctx, ids, product)
	if err != nil {
		return nil, err
	}
	if err := s.representable(r); err != nil {
		return nil, err
	}
	p := &Probe{Tokens: len(ids), Sites: map[string]float32{}, Scale: 1}
	for i, v := range r.Residual() {
		if v > p.Residual {
			p.Residual, p.Layer = v, i
		}
	}
	for _, site := range []string{"attn_out", "mlp_act", "mlp_out"} {
		p.Sites[site] = r.Max(site)
		// Where nothing normalises these before they join the stream they
		// carry its scale.
		if !s.Model.Config().Sandwich && site != "mlp_act" {
			p.Residual = max(p.Residual, p.Sites[site])
		}
	}
	return p, nil
}

// choose picks the scale: the largest power of two ≤ 1 that keeps the residual
// stream ProbeHeadroom below the end of fp16, and every embedding, the largest
// of which is rows, within it.
func (p *Probe) choose(rows float32) {
	for float64(p.Residual)*p.Scale*ProbeHeadroom > fp16Max || float64(rows)*p.Scale > fp16Max {
		p.Scale /= 2
	}
}

// representable finds what overflows fp16 and does not carry the scale of the
// residual stream.
func (s *Source) representable(r reference.Ranges) error {
	for _, site := range r.Sites {
		switch name := site.Name[strings.LastIndexByte(site.Name, '.')+1:]; name {
		case "embed", "resid_mid", "resid_mlp", "resid_ple", "out", "post_attn_norm", "post_mlp_norm", "post_ple_norm":
			continue
		case "scores_bound": // of pairs that never meet
			continue
		case "attn_out", "mlp_out":
			if !s.Model.Config().Sandwich {
				continue
			}
		}
		if site.MaxAbs > fp16Max {
			return fmt.Errorf("%s reaches %.5g, beyond fp16's %d, and is not part of the residual stream, which can be scaled (convert with compute f32)", site.Name, site.MaxAbs, fp16Max)
		}
	}
	return nil
}

// config returns config.json without the keys to be ignored, which the
// reference, strict like the converter, would refuse once more.
func (s *Source) config() ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(s.Dir, "config.json"))
	if err != nil || len(s.ignore) == 0 {
		return data, err
	}
	strip := func(data []byte) (map[string]json.RawMessage, error) {
		var m map[string]json.RawMessage
		err := json.Unmarshal(data, &m)
		for _, k := range s.ignore {
			delete(m, k)
		}
		return m, err
	}
	outer, err := strip(data)
	if err != nil {
		return nil, err
	}
	if text, ok := outer["text_config"]; ok {
		inner, err := strip(text)
		if err != nil {
			return nil, err
		}
		if outer["text_config"], err = json.Marshal(inner); err != nil {
			return nil, err
		}
	}
	return json.Marshal(outer)
}
