package parity

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/models"
)

// readDraftGolden reads the recorded rounds of a drafter: fixtures/README.md
// says which tensors there are.
//
// known are the target's ids of the draft vocabulary, whose logits are
// recorded; nil: all.
func readDraftGolden(path string, c *chunking.DrafterContract, known []int32) ([]draftRound, error) {
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("parity: %w", err)
	}
	defer f.Close()
	g := &draftGolden{f: f, c: c}
	var rounds []draftRound
	switch c.Drafter {
	case models.Gemma4Assistant:
		rounds = g.assistant()
	case models.Eagle3, models.DSpark:
		rounds = g.taps(known)
	case models.MTPModules:
		rounds = g.serial()
	}
	if g.err == nil && len(rounds) == 0 {
		g.err = fmt.Errorf("there are no rounds of a %s drafter in it", c.Drafter)
	}
	if g.err != nil {
		return nil, fmt.Errorf("parity: %s: %w", path, g.err)
	}
	return rounds, nil
}

// draftGolden reads tensors; the first error is latched.
type draftGolden struct {
	f   *checkpoint.File
	c   *chunking.DrafterContract
	err error
}

func (g *draftGolden) has(name string) bool { _, ok := g.f.Tensor(name); return ok }

func (g *draftGolden) floats(name string) []float32 {
	t, ok := g.f.Tensor(name)
	if !ok {
		g.fail(fmt.Errorf("tensor %q is missing", name))
		return nil
	}
	v, err := checkpoint.ReadAll(t)
	g.fail(err)
	return v
}

func (g *draftGolden) ids(name string) []int32 {
	t, ok := g.f.Tensor(name)
	if !ok {
		g.fail(fmt.Errorf("tensor %q is missing", name))
		return nil
	}
	v, err := checkpoint.ReadInts(t)
	g.fail(err)
	out := make([]int32, len(v))
	for i, x := range v {
		if x < 0 || x >= int64(max(g.c.Vocab, g.c.Context)) {
			g.fail(fmt.Errorf("tensor %q: element %d is %d", name, i, x))
		}
		out[i] = int32(x)
	}
	return out
}

func (g *draftGolden) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// rows cuts v into n rows.
func (g *draftGolden) rows(v []float32, n int) [][]float32 {
	if n == 0 || len(v)%n != 0 {
		g.fail(fmt.Errorf("%d elements in %d rows", len(v), n))
		return make([][]float32, n)
	}
	return slices.Collect(slices.Chunk(v, len(v)/n))
}

// taps reads rounds r0, r1, … of drafters that read taps.
func (g *draftGolden) taps(columns []int32) []draftRound {
	var out []draftRound
	width := len(g.c.Target.Taps) * g.c.Target.Hidden
	at := 0
	for r := 0; g.err == nil; r++ {
		name := func(what string) string { return fmt.Sprintf("r%d.%s", r, what) }
		if !g.has(name("taps")) {
			return out
		}
		taps := g.floats(name("taps"))
		n := len(taps) / width
		round := draftRound{rows: drafter.Rows{Position: at, Tokens: make([]int32, n), Taps: taps}}
		round.want.Tokens = g.ids(name("draft"))
		round.want.Logits = g.rows(g.floats(name("logits")), len(round.want.Tokens))
		if g.c.Drafter == models.Eagle3 {
			next, all := g.ids(name("next_ids")), g.ids("sequence")
			if len(next) != n || len(all) < at+n {
				g.fail(fmt.Errorf("round %d has %d rows and %d tokens of %d", r, n, len(next), len(all)))
				return nil
			}
			copy(round.rows.Tokens, all[at:])
			round.next = next[n-1]
			round.columns = columns
		} else {
			anchor := g.ids(name("anchor"))
			if len(anchor) != 1 {
				g.fail(fmt.Errorf("round %d has %d anchors", r, len(anchor)))
				return nil
			}
			round.next = anchor[0]
			round.want.Confidence = g.floats(name("confidence"))
		}
		at += n
		out = append(out, round)
	}
	return out
}

// serial reads the drafts of MTP modules at every position.
func (g *draftGolden) serial() []draftRound {
	tokens, trunk, drafts := g.ids("tokens"), g.floats("trunk_hidden"), g.ids("serial.drafts")
	h, k := g.c.Target.Hidden, g.c.MaxDraft
	n := len(trunk) / h
	if g.err != nil || len(drafts) != n*k || len(tokens) <= n {
		g.fail(fmt.Errorf("%d positions, %d drafts, %d tokens", n, len(drafts), len(tokens)))
		return nil
	}
	logits := g.rows(g.floats("serial.draft_logits"), n*k)
	var out []draftRound
	for i := range n {
		out = append(out, draftRound{
			rows: drafter.Rows{Position: i, Tokens: tokens[i : i+1], Hidden: trunk[i*h : (i+1)*h], Norm: drafter.Pre},
			next: tokens[i+1], want: drafter.Draft{Tokens: drafts[i*k : (i+1)*k], Logits: logits[i*k : (i+1)*k]},
		})
	}
	return out
}

// assistant reads the rounds of the Gemma 4 assistant: draft.n7.tokens is what
// follows seven tokens.
func (g *draftGolden) assistant() []draftRound {
	var after []int
	for _, name := range g.f.Names() {
		if s, ok := strings.CutPrefix(name, "draft.n"); ok {
			if s, ok = strings.CutSuffix(s, ".tokens"); ok {
				if n, err := strconv.Atoi(s); err == nil {
					after = append(after, n)
				}
			}
		}
	}
	slices.SortFunc(after, cmp.Compare[int])
	tokens, hidden := g.ids("input_ids"), g.floats("target.hidden_norm")
	h, at := g.c.Target.Hidden, 0
	var out []draftRound
	for _, n := range after {
		if g.err != nil || n <= at || n >= len(tokens) || len(hidden) < n*h {
			g.fail(fmt.Errorf("a round after %d tokens of %d", n, len(tokens)))
			return nil
		}
		r := draftRound{next: tokens[n], rows: drafter.Rows{Position: at, Tokens: tokens[at:n], Hidden: hidden[at*h : n*h], Norm: drafter.Post,
			Keys: map[string][]float32{}, Values: map[string][]float32{}}}
		for kind, s := range g.c.Target.Keys {
			w := s.Heads * s.HeadDim
			k, v := g.floats("target."+kind+"_attention.k"), g.floats("target."+kind+"_attention.v")
			if len(k) < n*w || len(v) < n*w {
				g.fail(fmt.Errorf("%s keys and values of %d and %d elements, want %d of each of %d tokens", kind, len(k), len(v), w, n))
				return nil
			}
			r.rows.Keys[kind], r.rows.Values[kind] = k[at*w:n*w], v[at*w:n*w]
		}
		r.want.Tokens = g.ids(fmt.Sprintf("draft.n%d.tokens", n))
		r.want.Logits = g.rows(g.floats(fmt.Sprintf("draft.n%d.logits", n)), len(r.want.Tokens))
		at = n
		out = append(out, r)
	}
	return out
}
