package fidelity

import (
	"context"
	"fmt"

	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/engine"
)

// Decoder evaluates a checkpoint without converting it. Weights stay where they
// are and are read, or decoded, once for several windows. Two of them are
// compared without their logits ever being in memory.
func Decoder(d *decoder.Decoder) Model { return direct{d} }

type direct struct{ d *decoder.Decoder }

func (d direct) Vocab() int { return d.d.Config().Vocab }

func (d direct) Logits(ctx context.Context, ids []int32, emit func(row, first int, logits []float32) error) error {
	h, x, err := d.norm(ctx, [][]int32{ids})
	if err != nil {
		return err
	}
	x.Rows--
	return h.Logits(ctx, x, emit)
}

// norm runs sequences up to the head.
func (d direct) norm(ctx context.Context, sequences [][]int32) (*decoder.Head, decoder.Matrix, error) {
	h, err := d.d.NewHead(nil)
	if err != nil {
		return nil, decoder.Matrix{}, err
	}
	s, err := d.d.Embed(ctx, sequences, nil)
	if err != nil {
		return nil, decoder.Matrix{}, err
	}
	if err := d.d.Layers(ctx, s, decoder.Options{}); err != nil {
		return nil, decoder.Matrix{}, err
	}
	x, err := d.d.Norm(s)
	return h, x, err
}

// together evaluates windows of one length at once, and against ref unless that is
// nil.
func (d direct) together(ctx context.Context, ref *direct, windows [][]int32) ([]position, error) {
	var rows []int
	var next []int32
	for w, ids := range windows {
		for i := range ids[1:] {
			rows = append(rows, w*len(ids)+i)
			next = append(next, ids[i+1])
		}
	}
	h, x, err := d.norm(ctx, windows)
	if err != nil {
		return nil, err
	}
	x = x.Select(rows)
	refHead, refX := h, x
	if ref != nil {
		if refHead, refX, err = ref.norm(ctx, windows); err != nil {
			return nil, fmt.Errorf("reference: %w", err)
		}
		refX = refX.Select(rows)
	}
	found, err := decoder.Compare(ctx, h, x, refHead, refX, next)
	if err != nil {
		return nil, err
	}
	out := make([]position, len(found))
	for i, f := range found {
		out[i] = position{nll: f.NLL, refNLL: f.Reference, kl: f.KL, same: f.Same}
	}
	return out, nil
}

// Bundle evaluates a converted bundle, which must yield logits, through its
// prefill functions.
func Bundle(e *engine.Engine) Model { return bundle{e} }

type bundle struct{ e *engine.Engine }

func (b bundle) Vocab() int { return b.e.Contract().Model.Vocab }

func (b bundle) Logits(ctx context.Context, ids []int32, emit func(row, first int, logits []float32) error) error {
	if c := b.e.Contract().Context; len(ids) > c {
		return fmt.Errorf("fidelity: a window has %d tokens, the bundle room for %d (choose a smaller window)", len(ids), c)
	}
	s := b.e.NewSession()
	row := 0
	_, err := s.Prefill(ids[:len(ids)-1], func(r engine.Row) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.Logits == nil {
			return fmt.Errorf("fidelity: the bundle yields no logits (convert with --head token,logits)")
		}
		err := emit(row, 0, r.Logits)
		row++
		return err
	})
	return err
}
