package parity

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/tokenizer"
)

// rowBudget is how many logits a recording keeps at all positions; beyond it
// only rowsKept positions keep their row.
const (
	rowBudget = 16 << 20
	rowsKept  = 24
)

// Record computes a recording with the reference decoder. progress may be
// nil.
func Record(ctx context.Context, m *reference.Model, ids []int32, source string) (*Recording, error) {
	vocab, T := m.Config().Vocab, len(ids)
	rec := &Recording{Source: source, IDs: ids, Vocab: vocab, Noise: nan, Positions: make([]Position, T)}
	keep := map[int]bool{}
	if T*vocab > rowBudget {
		for _, t := range spread(T, rowsKept) {
			keep[t] = true
		}
	}
	acc := make([]rowSum, T)
	for t := range acc {
		acc[t].top = math.Inf(-1)
		if T*vocab <= rowBudget || keep[t] {
			rec.Positions[t].Row = make([]float32, vocab)
		}
	}
	tile := func(first int, x *reference.Matrix) error {
		rec.MaxAbs = math.Max(rec.MaxAbs, maxAbs(x.Data))
		var g errgroup.Group
		g.SetLimit(runtime.GOMAXPROCS(0))
		for t := range x.Rows {
			g.Go(func() error {
				row := x.Row(t)
				acc[t].add(first, row)
				if rec.Positions[t].Row != nil {
					copy(rec.Positions[t].Row[first:], row)
				}
				return nil
			})
		}
		return g.Wait()
	}
	if _, err := m.Forward(ctx, ids, reference.Options{Head: true, HeadTile: tile, Product: product}); err != nil {
		return nil, fmt.Errorf("parity: %s: %w", source, err)
	}
	for t := range acc {
		p := &rec.Positions[t]
		p.Top, p.Argmax, p.LSE, p.margin = acc[t].best, acc[t].best[0].ID, acc[t].lse(), nan
	}
	return rec, rec.check()
}

// rowSum reduces a row of logits that comes in tiles.
type rowSum struct {
	best     []Scored
	top, sum float64
}

func (r *rowSum) add(first int, tile []float32) {
	for _, s := range topK(tile, TopK) {
		s.ID += int32(first)
		j := len(r.best)
		for j > 0 && s.Logit > r.best[j-1].Logit {
			j--
		}
		r.best = append(r.best, Scored{})
		copy(r.best[j+1:], r.best[j:])
		r.best[j] = s
		r.best = r.best[:min(len(r.best), TopK)]
	}
	part := logSumExp(tile)
	if part > r.top {
		r.sum = r.sum*math.Exp(r.top-part) + 1
		r.top = part
	} else {
		r.sum += math.Exp(part - r.top)
	}
}

func (r *rowSum) lse() float64 { return r.top + math.Log(r.sum) }

// BuiltInPrompt is fed where neither a recording nor prompts are given and
// the bundle has a tokenizer: prose, numbers, code and other scripts.
const BuiltInPrompt = `A database that is asked twice must answer the same twice. Between the two questions the machine may
lose power, and what was half written must either be finished or forgotten; nothing in between may ever be seen.
In 2004 a survey of 1,250 disks found that 3.8% of them lied about having written what they were told to write.

func crc(b []byte) uint32 { var c uint32 = 0xffffffff; for _, x := range b { c = table[byte(c)^x] ^ c>>8 }; return ^c }

| pages | seconds | ratio |
|-------|---------|-------|
| 1024  | 0.37    | 2.5×  |

Où est passée la page 17 ? Sie liegt im Zwischenspeicher. 日誌が先、本体は後。 Запись завершена.
{"committed": true, "pages": [1, 2, 3, 5, 8, 13], "error": null}
The writer holds the lock until the journal is safe. Then, and only then, the readers are let in, one after the other,
and each of them sees either the old state or the new one. That is the whole trick; the rest is care.`

// prompts turns the prompts of a file (one a line) or the built-in one into
// ids. Bundles without a tokenizer get ids spread over the vocabulary.
func prompts(dir, file string, c *chunking.Contract, want int) ([][]int32, []string, error) {
	var texts []string
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, nil, fmt.Errorf("parity: prompts: %w", err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if line := strings.TrimSpace(lines.Text()); line != "" {
				texts = append(texts, line)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, nil, fmt.Errorf("parity: prompts: %s: %w", file, err)
		}
		if len(texts) == 0 {
			return nil, nil, fmt.Errorf("parity: prompts: %s has no text", file)
		}
	}
	hf := filepath.Join(dir, chunking.HFDir)
	if _, err := os.Stat(filepath.Join(hf, "tokenizer.json")); err != nil {
		if file != "" {
			return nil, nil, fmt.Errorf("parity: prompts: the bundle has no tokenizer.json (record ids with interop/record_pt.py instead)")
		}
		var ids []int32
		if c.Model.BOS >= 0 && c.Model.BOS < c.Model.Vocab {
			ids = append(ids, int32(c.Model.BOS))
		}
		return [][]int32{continueIDs(ids, want, c.Model.Vocab)}, []string{"reference decoder on generated ids"}, nil
	}
	tok, err := tokenizer.Load(hf)
	if err != nil {
		return nil, nil, err
	}
	encode := func(text string) ([]int32, error) {
		ids, err := tok.Encode(text, tokenizer.EncodeOptions{AddSpecial: true})
		if err != nil {
			return nil, fmt.Errorf("parity: prompts: %w", err)
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("parity: prompts: %q has no tokens", text)
		}
		for _, id := range ids {
			if int(id) >= c.Model.Vocab {
				return nil, fmt.Errorf("parity: prompts: token %d is outside the vocabulary of %d (the tokenizer of another model?)", id, c.Model.Vocab)
			}
		}
		return ids[:min(len(ids), c.Context)], nil
	}
	if file == "" {
		ids, err := encode(BuiltInPrompt)
		if err != nil {
			return nil, nil, err
		}
		return [][]int32{continueIDs(ids, max(want, min(len(ids), 256)), c.Model.Vocab)}, []string{"reference decoder on the built-in prompt"}, nil
	}
	var out [][]int32
	var names []string
	for i, text := range texts {
		ids, err := encode(text)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, ids)
		names = append(names, fmt.Sprintf("reference decoder on prompt %d of %s", i+1, filepath.Base(file)))
	}
	return out, names, nil
}
