package speculate

import (
	"context"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/parity/reference"
)

// CheckpointTarget is an unconverted model as a target: the reference decoder,
// which computes the whole text anew at every call. It delivers everything that
// drafters read, and is slow.
type CheckpointTarget struct {
	ctx   context.Context
	m     *reference.Model
	name  string
	eos   []int32
	needs drafter.Needs
	text  []int32 // committed
	// last is the call that Commit takes rows of.
	last *reference.Result
	ids  []int32
}

// NewCheckpointTarget starts a text. eos are the tokens that end one.
func NewCheckpointTarget(ctx context.Context, name string, m *reference.Model, eos []int32) *CheckpointTarget {
	return &CheckpointTarget{ctx: ctx, m: m, name: name, eos: eos}
}

// Describe says what the model is.
func (t *CheckpointTarget) Describe() drafter.Target {
	c := t.m.Config()
	d := drafter.Target{Name: t.name, Hidden: c.Hidden, Vocab: c.Vocab, Layers: c.Layers, Keys: map[string]drafter.Shape{}}
	for i, k := range c.Kinds {
		if l := c.Layer(i); l.KVSource == i {
			d.Keys[kindName(k)] = drafter.Shape{Heads: l.KVHeads, HeadDim: l.HeadDim}
		}
	}
	return d
}

func kindName(k reference.LayerKind) string {
	if k == reference.SlidingAttention {
		return "sliding"
	}
	return "full"
}

// Context is the number of positions.
func (t *CheckpointTarget) Context() int { return t.m.Config().MaxPositions }

// EOS are the tokens that end a text.
func (t *CheckpointTarget) EOS() []int32 { return t.eos }

// MaxVerify is not limited.
func (t *CheckpointTarget) MaxVerify() int { return t.Context() }

// Require asks for taps, hidden states, keys and values.
func (t *CheckpointTarget) Require(n drafter.Needs) error {
	t.needs = n
	return nil
}

// Reset starts a new text.
func (t *CheckpointTarget) Reset() { t.text, t.last, t.ids = nil, nil, nil }

// Pos is the number of tokens processed.
func (t *CheckpointTarget) Pos() int { return len(t.text) }

func (t *CheckpointTarget) run(ids []int32, head bool) error {
	if len(t.text)+len(ids) > t.Context() {
		return fmt.Errorf("speculate: position %d is beyond the %d of %s", len(t.text)+len(ids)-1, t.Context(), t.name)
	}
	o := reference.Options{Head: head, KV: len(t.needs.Keys) > 0}
	for i := range ids {
		o.Positions = append(o.Positions, len(t.text)+i)
	}
	r, err := t.m.Forward(t.ctx, append(slices.Clip(t.text), ids...), o)
	if err != nil {
		return err
	}
	t.last, t.ids = r, slices.Clone(ids)
	return nil
}

// Prefill processes tokens that are part of the text.
func (t *CheckpointTarget) Prefill(ids []int32) (drafter.Rows, error) {
	if len(ids) == 0 {
		return drafter.Rows{Position: len(t.text)}, nil
	}
	if needsNothing(t.needs) {
		r := drafter.Rows{Position: len(t.text), Tokens: slices.Clone(ids)}
		t.text = append(t.text, ids...)
		return r, nil
	}
	if err := t.run(ids, false); err != nil {
		return drafter.Rows{}, err
	}
	return t.Commit(len(ids))
}

// Decode processes one token that is part of the text.
func (t *CheckpointTarget) Decode(id int32) (Choice, drafter.Rows, error) {
	c, err := t.Verify([]int32{id})
	if err != nil {
		return Choice{}, drafter.Rows{}, err
	}
	r, err := t.Commit(1)
	return c[0], r, err
}

// Verify feeds drafts.
func (t *CheckpointTarget) Verify(ids []int32) ([]Choice, error) {
	if err := t.run(ids, true); err != nil {
		return nil, err
	}
	var out []Choice
	for i := range ids {
		logits := t.last.Logits.Row(i)
		out = append(out, Choice{argmax(logits), logits})
	}
	return out, nil
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// Commit makes the first n tokens of the last call part of the text.
func (t *CheckpointTarget) Commit(n int) (drafter.Rows, error) {
	if t.last == nil || n > len(t.ids) {
		return drafter.Rows{}, fmt.Errorf("speculate: nothing to commit")
	}
	pos, res := len(t.text), t.last
	r := drafter.Rows{Position: pos, Tokens: slices.Clone(t.ids[:n])}
	for p := pos; p < pos+n; p++ {
		for _, l := range t.needs.Taps {
			r.Taps = append(r.Taps, res.Hidden[l+1].Row(p)...)
		}
		switch t.needs.Norm {
		case drafter.Pre:
			r.Hidden = append(r.Hidden, res.Hidden[len(res.Hidden)-1].Row(p)...)
		case drafter.Post:
			r.Hidden = append(r.Hidden, res.Norm.Row(p)...)
		}
	}
	r.Norm = t.needs.Norm
	if len(t.needs.Keys) > 0 {
		r.Keys, r.Values = map[string][]float32{}, map[string][]float32{}
		for kind, kv := range res.KV {
			name := kindName(kind)
			if _, ok := t.needs.Keys[name]; !ok {
				continue
			}
			r.Keys[name] = slices.Clone(kv.K.Data[pos*kv.K.Cols : (pos+n)*kv.K.Cols])
			r.Values[name] = slices.Clone(kv.V.Data[pos*kv.V.Cols : (pos+n)*kv.V.Cols])
		}
	}
	t.text = append(t.text, t.ids[:n]...)
	t.last = nil
	return r, nil
}

// Embed writes the scaled embedding of a token, for drafters that take their
// target's.
func (t *CheckpointTarget) Embed(dst []float32, id int32) error {
	row, err := t.m.Embed(id)
	if err != nil {
		return err
	}
	if len(row) != len(dst) {
		return fmt.Errorf("speculate: an embedding of %s has %d elements, not %d", t.name, len(row), len(dst))
	}
	copy(dst, row)
	return nil
}
