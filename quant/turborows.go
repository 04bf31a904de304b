package quant

import (
	"math"

	"github.com/smelt-go/smelt/internal/half"
)

// codeRows codes rows that have one scale each.
func (b *turboBlock) codeRows() {
	cols, n := b.f.cols, b.n
	scales := b.scales[0]
	start := make([]byte, cols)
	for r := range b.own {
		b.trial.scale[r] = half.ToF32(b.cells.fit(start, b.y[r*cols:][:cols], RTN))
	}
	energy := b.f.losses(b.y, nil)
	least := make([]float64, b.own) // of every row
	for r := range least {
		least[r] = math.Inf(1)
	}
	var decoded []float32
	level := make([]float32, cols*n)
	// pass codes all rows with the scales of b.trial, keeps what is better, and
	// says whether anything is.
	pass := func() (loss []float64, any bool) {
		b.trial.store()
		decoded = append(decoded[:0], b.y...)
		b.f.RoundGroups(decoded, func(c *Columns) {
			b.code(c, &b.trial, b.z, b.newLoss)
			for j, col := range c.Index {
				z, out := b.z[j*n:(j+1)*n], c.Decoded[j*n:(j+1)*n]
				copy(level[int(col)*n:], z)
				for r, v := range z {
					out[r] = float32(v * b.trial.scale[r])
				}
			}
		})
		loss = b.f.losses(b.y, decoded)
		for r, l := range loss {
			if !(l < least[r]) {
				continue
			}
			any = true
			least[r] = l
			scales.scale[r], scales.inverse[r] = b.trial.scale[r], b.trial.inverse[r]
			for col := range cols {
				b.level[col*n+r] = level[col*n+r]
			}
		}
		return loss, any
	}
	// solve finds the scales that are best for what was decoded last: with w and d
	// for weights and decoded ones, 2·w·H·dᵀ is w·H·wᵀ + d·H·dᵀ less the loss.
	solve := func(loss []float64) {
		for r, dd := range b.f.losses(decoded, nil) {
			if dd > 0 {
				b.trial.scale[r] = float32(float64(b.trial.scale[r]) * (energy[r] + dd - loss[r]) / (2 * dd))
			}
		}
	}
	loss, _ := pass()
	solve(loss)
	for range 2 {
		var any bool
		if loss, any = pass(); !any {
			break
		}
		solve(loss)
	}
	for _, f := range []float32{0.93, 1.07} {
		for r, s := range scales.scale {
			b.trial.scale[r] = float32(f * s)
		}
		pass()
	}
	for range refinements + 1 {
		b.refineRows(energy)
	}
}

// refineRows codes columns again, with all others and the scales as they are, and
// then finds the scales that are best for them.
func (b *turboBlock) refineRows(energy []float64) {
	cols, n := b.f.cols, b.n
	scales := b.scales[0]
	decoded := make([]float32, len(b.y))
	decode := func(p turboScales) {
		for r := range b.own {
			for col := range cols {
				decoded[r*cols+col] = float32(b.level[col*n+r] * p.scale[r])
			}
		}
	}
	decode(scales)
	b.f.Refine(b.y, decoded, func(c *Columns) {
		b.enter(c)
		b.attempts(c, 1)
		b.leave(c)
	})
	loss, dd := b.f.losses(b.y, decoded), b.f.losses(decoded, nil)
	for r, s := range scales.scale[:b.own] {
		b.trial.scale[r] = s
		if dd[r] > 0 {
			b.trial.scale[r] = float32(float64(s) * (energy[r] + dd[r] - loss[r]) / (2 * dd[r]))
		}
	}
	b.trial.store()
	decode(b.trial)
	for r, l := range b.f.losses(b.y, decoded) {
		if l < loss[r] {
			scales.scale[r], scales.inverse[r] = b.trial.scale[r], b.trial.inverse[r]
		}
	}
}
