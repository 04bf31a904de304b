package parity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/tokenizer"
)

// tokenizerGate compares the bundle's tokenizer with the checkpoint's.
func tokenizerGate() Gate {
	return Gate{
		ID:     "tokenizer",
		Proves: "the bundle's tokenizer gives the checkpoint's ids, BOS included, all inside the vocabulary; BOS and EOS are config.json's",
		Skip: func(s *Subject) string {
			if !exists(filepath.Join(s.Dir, chunking.HFDir, "tokenizer.json")) && (s.opts.Checkpoint == "" || !exists(filepath.Join(s.opts.Checkpoint, "tokenizer.json"))) {
				return "there is no tokenizer.json"
			}
			return ""
		},
		Run: func(_ context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			hf := filepath.Join(s.Dir, chunking.HFDir)
			if !exists(filepath.Join(hf, "tokenizer.json")) {
				res.symptom("no tokenizer")
				res.fail("the checkpoint has a tokenizer.json, the bundle's %s has none", chunking.HFDir)
				return res, nil
			}
			mine, err := tokenizer.Load(hf)
			if err != nil {
				res.symptom("unreadable")
				res.fail("%v", err)
				return res, nil
			}
			var theirs *tokenizer.Tokenizer
			if dir := s.opts.Checkpoint; dir != "" && exists(filepath.Join(dir, "tokenizer.json")) {
				if theirs, err = tokenizer.Load(dir); err != nil {
					return nil, err
				}
			}
			m := s.Contract.Model
			tokens := 0
			for _, text := range tokenizerTexts {
				ids, err := mine.Encode(text, tokenizer.EncodeOptions{AddSpecial: true})
				if err != nil {
					res.symptom("unreadable")
					res.fail("%v", err)
					return res, nil
				}
				tokens += len(ids)
				for p, id := range ids {
					if int(id) >= m.Vocab {
						res.symptom("outside the vocabulary")
						res.failAt(p, "token %d of %q is %d, the model's vocabulary has %d (the tokenizer of another model?)", p, clipText(text), id, m.Vocab)
					}
				}
				if theirs == nil {
					continue
				}
				want, err := theirs.Encode(text, tokenizer.EncodeOptions{AddSpecial: true})
				if err != nil {
					return nil, err
				}
				if slices.Equal(ids, want) {
					continue
				}
				switch {
				case len(want) == len(ids)+1 && slices.Equal(ids, want[1:]):
					res.symptom("BOS dropped")
					res.failAt(0, "the checkpoint's tokenizer puts token %d in front, the bundle's does not", want[0])
				case len(ids) == len(want)+1 && slices.Equal(ids[1:], want):
					res.symptom("BOS added")
					res.failAt(0, "the bundle's tokenizer puts token %d in front, the checkpoint's does not", ids[0])
				default:
					p := 0
					for p < min(len(ids), len(want)) && ids[p] == want[p] {
						p++
					}
					res.symptom("other ids")
					res.failAt(p, "%q: %d ids, the checkpoint's tokenizer gives %d; the first difference is at token %d", clipText(text), len(ids), len(want), p)
				}
			}
			res.note("texts", float64(len(tokenizerTexts)))
			res.note("tokens", float64(tokens))
			bos, eos, ok := specialTokens(hf)
			if ok && bos >= 0 && bos != m.BOS {
				res.symptom("BOS differs")
				res.fail("contract: bos_token_id is %d, config.json says %d", m.BOS, bos)
			}
			for _, id := range eos {
				if len(m.EOS) > 0 && !slices.Contains(m.EOS, id) {
					res.symptom("EOS differs")
					res.fail("contract: eos_token_ids are %v, config.json has %d", m.EOS, id)
				}
			}
			return res, nil
		},
	}
}

// tokenizerTexts are what both tokenizers encode.
var tokenizerTexts = []string{BuiltInPrompt, "x", " two  spaces", "0123456789", "Straße, naïve, 北京, Ελλάδα", "a\n\n\tb"}

func clipText(s string) string {
	if r := []rune(s); len(r) > 24 {
		return string(r[:24]) + "…"
	}
	return s
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// specialTokens reads bos_token_id and eos_token_id of a config.json; -1 where
// there is none.
func specialTokens(dir string) (bos int, eos []int, ok bool) {
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return -1, nil, false
	}
	type ids struct {
		BOS *int            `json:"bos_token_id"`
		EOS json.RawMessage `json:"eos_token_id"`
	}
	var root struct {
		ids
		Text ids `json:"text_config"`
	}
	if json.Unmarshal(data, &root) != nil {
		return -1, nil, false
	}
	x := root.ids
	if x.BOS == nil {
		x.BOS = root.Text.BOS
	}
	if x.EOS == nil {
		x.EOS = root.Text.EOS
	}
	bos = -1
	if x.BOS != nil {
		bos = *x.BOS
	}
	var one int
	if json.Unmarshal(x.EOS, &one) == nil {
		eos = []int{one}
	} else {
		_ = json.Unmarshal(x.EOS, &eos)
	}
	return bos, eos, true
}

// recordingGate asks whether a recording belongs to the checkpoint.
func recordingGate() Gate {
	return Gate{
		ID:     "recording",
		Proves: "the recording is of this checkpoint: the reference decoder gives its first logits",
		Skip: func(s *Subject) string {
			if s.opts.Golden == "" || s.Original == nil {
				return "that takes both a recording and a checkpoint"
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			n := 24
			if s.large {
				n = 8
			}
			rec := s.golden
			n = min(n, len(rec.IDs))
			got, err := Record(ctx, s.Original, rec.IDs[:n], "reference decoder")
			if err != nil {
				return nil, err
			}
			limit := ExactRelative*max(1, rec.MaxAbs) + rec.Resolution
			worst, at := 0.0, 0
			for p := range n {
				var d float64
				if row := rec.Positions[p].Row; row != nil && got.Positions[p].Row != nil {
					d = maxAbsDiff(row, got.Positions[p].Row)
				} else {
					for i, t := range rec.Positions[p].Top {
						if i < len(got.Positions[p].Top) {
							d = max(d, abs32(t.Logit-got.Positions[p].Top[i].Logit))
						}
					}
				}
				if !(d <= worst) && worst == worst {
					worst, at = d, p
				}
			}
			res.note("positions", float64(n))
			if res.atMost("max_abs_dlogit", worst, limit); res.Status == Fail {
				res.symptom("other logits")
				res.Reason = fmt.Sprintf("at position %d the recording differs by %s from what the checkpoint means, %s allowed (recorded from another version of it?)", at, short(worst), short(limit))
				res.Finding = &Finding{Layer: -1, Position: at, Site: "logits", MaxAbs: Num(worst), Limit: Num(limit)}
			}
			return res, nil
		},
	}
}

func abs32(x float32) float64 {
	if x < 0 {
		x = -x
	}
	return float64(x)
}
