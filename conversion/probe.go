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

// probeText is what the range probe reads: prose, code, numbers and symbols.
const probeText = `The lock is released only after the journal has been written, so a reader never sees half a change. ` +
	`In 1998, about 3.5% of 12,500 files were damaged. "Why?" she asked; nobody knew. ` +
	"for (int i = 0; i < n; i++) { sum += a[i] * b[i]; }\n\n# Heading\n- item one\n- item two\n" +
	"SELECT name, count(*) FROM t WHERE id > 42 GROUP BY name;"

const probeTokens = 96

// probeIDs returns the token ids that the range probe runs: text where the
// source has a tokenizer, else ids spread over the vocabulary.
func (s *Source) probeIDs(tok *tokenizer.Tokenizer) []int32 {
	cfg := s.Model.Config()
	var ids []int32
	if cfg.BOS >= 0 && cfg.BOS < cfg.Vocab {
		ids = append(ids, int32(cfg.BOS))
	}
	n := min(probeTokens, cfg.MaxPositions)
	if tok != nil {
		if text, err := tok.Encode(probeText, tokenizer.EncodeOptions{}); err == nil {
			for _, id := range text {
				if int(id) < cfg.Vocab {
					ids = append(ids, id)
				}
			}
		}
	}
	for x := uint32(12345); len(ids) < n; {
		x = x*1664525 + 1013904223
		ids = append(ids, int32(uint64(x)*uint64(cfg.Vocab)>>32))
	}
	return ids[:n]
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

// probe measures how large activations grow and picks the residual scale: the
// largest power of two ≤ 1 that keeps the residual stream ProbeHeadroom below
// the end of fp16. rows is the largest magnitude of any embedding, scaled.
//
// What overflows without being part of the stream no scale can mend: an error.
func (s *Source) probe(ctx context.Context, tok *tokenizer.Tokenizer, rows float32) (*Probe, error) {
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	m, err := reference.New(s.view, config)
	if err != nil {
		return nil, err
	}
	ids := s.probeIDs(tok)
	r, err := m.RangeProbe(ctx, ids)
	if err != nil {
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
	if err := s.representable(r); err != nil {
		return nil, err
	}
	for float64(p.Residual)*p.Scale*ProbeHeadroom > fp16Max || float64(rows)*p.Scale > fp16Max {
		p.Scale /= 2
	}
	return p, nil
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
