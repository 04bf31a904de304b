package fidelity

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/parity/reference"
)

// Checkpoint evaluates a checkpoint without converting it: the reference
// decoder with fast matrix products. Weights stay where they are and are read,
// or decoded, once a window.
func Checkpoint(m *reference.Model) Model { return direct{m} }

type direct struct{ m *reference.Model }

func (d direct) Vocab() int { return d.m.Config().Vocab }

func (d direct) Logits(ctx context.Context, ids []int32, emit func(row, first int, logits []float32) error) error {
	rows := make([]int, len(ids)-1)
	for i := range rows {
		rows[i] = i
	}
	_, err := d.m.Forward(ctx, ids, reference.Options{Head: true, Positions: rows, Product: multiply,
		HeadTile: func(first int, tile *reference.Matrix) error {
			return parallel(tile.Rows, func(i int) error { return emit(i, first, tile.Row(i)) })
		}})
	return err
}

// parallel runs f for 0 to n−1 on all cores.
func parallel(n int, f func(int) error) error {
	workers := min(runtime.GOMAXPROCS(0), n)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// multiply is a reference.Product of float32 kernels.
func multiply(y, x *reference.Matrix, w checkpoint.Tensor, first int, bias []float32) error {
	const tile = 256 // rows of w at a time
	tiles := (y.Cols + tile - 1) / tile
	return parallel(tiles, func(i int) error {
		at := i * tile
		n := min(tile, y.Cols-at)
		buf := make([]float32, n*x.Cols)
		if err := w.ReadFloat32(buf, (first+at)*x.Cols); err != nil {
			return err
		}
		if kernel.MaxBits(buf) >= 0x7f800000 {
			return fmt.Errorf("fidelity: tensor %q has weights that are not finite", w.Name())
		}
		kernel.MulF32(y.Data[at:], y.Cols, x.Data, x.Cols, x.Rows, buf, x.Cols, n, x.Cols)
		if bias != nil {
			for r := range y.Rows {
				row := y.Row(r)[at : at+n]
				for j := range row {
					row[j] += bias[at+j]
				}
			}
		}
		return nil
	})
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
