package quant

import (
	"errors"
	"math"

	"github.com/smelt-go/smelt/internal/bitpack"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/kernel"
)

// encodeFeedback codes rows with error feedback in the turned space, where the
// Hessian is R·H·Rᵀ and levels times scales are what can be decoded.
//
// The scale of a group is found when its turn comes, for its targets: least squares
// weighted with the pivots, without feedback; then scales about that one, by what
// coding the group with feedback really costs; then, for the levels of the best,
// least squares in the norm of the group, Σ D_j·(δ·U)_j², and coding again, while
// that helps. A scale that a whole row shares is judged by coding the row, and
// least squares are in the norm of the Hessian.
//
// Then groups are coded again, each with all others as they are (Refine). A row that
// would cost more than with method rtn gets that.
func (t Turbo) encodeFeedback(dst [][]byte, r Rows, st *Stats) error {
	f := r.Feedback
	if f == nil {
		return errors.New("quant: error feedback needs a calibration")
	}
	if f.cols != r.Cols || f.group != t.group(r.Cols) || !f.turned {
		return errors.New("quant: the calibration is for another matrix")
	}
	y := append([]float32(nil), r.W...)
	turnRows(y, r.Cols)
	b := newTurboBlock(t, f, y)
	if t.Group == 0 {
		b.codeRows()
	} else {
		b.codeGroups()
	}
	return b.finish(dst, st)
}

// turboScales are scales, one of each row, and their inverses, 0 where that of 0
// would be.
type turboScales struct{ scale, inverse []float32 }

func newTurboScales(n int) turboScales { return turboScales{make([]float32, n), make([]float32, n)} }

// store rounds scales to what can be stored.
func (p turboScales) store() {
	for i, s := range p.scale {
		s = half.ToF32(half.FromF32(s))
		inv := 1 / s
		if !(s > 0) || math.IsInf(float64(s), 0) || math.IsInf(float64(inv), 0) {
			s, inv = 0, 0
		}
		p.scale[i], p.inverse[i] = s, inv
	}
}

// turboBlock is some turned rows on their way.
type turboBlock struct {
	t      Turbo
	f      *Feedback
	cells  *turboCells
	y      []float32 // [own, cols], turned
	own, n int       // rows, and rows with those of zeros behind them
	groups int
	scales []turboScales // by group
	level  []float32     // [cols, n], by column: signed levels

	best              turboScales // of the group at hand
	trial             turboScales
	z, try            []float32 // levels [columns, n]
	errs              []float32
	yt, yz            []float32
	loss, newLoss     []float32
	sum, sum2, weight []float32
	keep              []uint32
}

func newTurboBlock(t Turbo, f *Feedback, y []float32) *turboBlock {
	own := len(y) / f.cols
	n := (own + lanes - 1) / lanes * lanes
	b := &turboBlock{t: t, f: f, cells: newTurboCells(t.Bits), y: y, own: own, n: n, groups: f.cols / f.group,
		level: make([]float32, f.cols*n), best: newTurboScales(n), trial: newTurboScales(n)}
	for range b.groups {
		b.scales = append(b.scales, newTurboScales(n))
	}
	size := f.block() * n
	for _, m := range []*[]float32{&b.z, &b.try, &b.errs, &b.yt, &b.yz} {
		*m = make([]float32, size)
	}
	for _, v := range []*[]float32{&b.loss, &b.newLoss, &b.sum, &b.sum2} {
		*v = make([]float32, n)
	}
	b.weight, b.keep = make([]float32, f.block()), make([]uint32, n)
	return b
}

// code codes the columns of c with feedback.
func (b *turboBlock) code(c *Columns, p *turboScales, z, loss []float32) {
	n := b.n
	clear(loss)
	for j := range c.Index {
		t := c.Targets[j*n : (j+1)*n]
		x := t
		if j > 0 {
			x = b.sum
			kernel.MulNN(x, n, c.Feedback[j*c.Stride:], c.Stride, 1, b.errs, n, j, n)
			kernel.Add(x, x, t)
		}
		b.cells.column(z[j*n:(j+1)*n], b.errs[j*n:(j+1)*n], loss, x, t, p, c.Pivots[j])
	}
}

// attempt codes with the scales of b.trial and keeps them where they are better;
// false if they are nowhere.
func (b *turboBlock) attempt(c *Columns) bool {
	b.trial.store()
	b.code(c, &b.trial, b.try, b.newLoss)
	any := false
	for r, l := range b.newLoss {
		b.keep[r] = 0
		if l < b.loss[r] {
			any = true
			b.keep[r] = math.MaxUint32
			b.loss[r] = l
			b.best.scale[r], b.best.inverse[r] = b.trial.scale[r], b.trial.inverse[r]
		}
	}
	if any {
		for j := range c.Index {
			z, try := b.z[j*b.n:(j+1)*b.n], b.try[j*b.n:(j+1)*b.n]
			for r, m := range b.keep {
				z[r] = math.Float32frombits(math.Float32bits(z[r])&^m | math.Float32bits(try[r])&m)
			}
		}
	}
	return any
}

// attempts tries multiples of the best scales.
func (b *turboBlock) attempts(c *Columns, factors ...float32) {
	for _, f := range factors {
		for r, s := range b.best.scale {
			b.trial.scale[r] = float32(f * s)
		}
		b.attempt(c)
	}
}

// alternate repeats least squares in the norm of the group and coding.
func (b *turboBlock) alternate(c *Columns) {
	m, n := len(c.Index), b.n
	kernel.MulNN(b.yt, n, c.Feedback, c.Stride, m, c.Targets, n, m, n)
	for range 3 {
		kernel.MulNN(b.yz, n, c.Feedback, c.Stride, m, b.z, n, m, n)
		b.ratio(b.yt[:m*n], b.yz[:m*n], c.Pivots)
		changed := false
		for r, s := range b.best.scale {
			v := half.ToF32(half.FromF32(b.trial.scale[r]))
			changed = changed || v != s
		}
		if !changed || !b.attempt(c) {
			break
		}
	}
}

// ratio stores Σ d·t·z / Σ d·z² of each row in b.trial, and the sums in b.sum
// and b.sum2. b.try is overwritten.
func (b *turboBlock) ratio(t, z, d []float32) {
	m, n := len(d), b.n
	copy(b.weight, d)
	product := b.try[:m*n]
	kernel.Mul(product, t, z)
	kernel.MulNN(b.sum, n, b.weight, m, 1, product, n, m, n)
	kernel.Mul(product, z, z)
	kernel.MulNN(b.sum2, n, b.weight, m, 1, product, n, m, n)
	for r, zz := range b.sum2 {
		b.trial.scale[r] = b.best.scale[r]
		if zz > 0 {
			b.trial.scale[r] = b.sum[r] / zz
		}
	}
}

// codeGroups codes rows whose groups have scales of their own.
func (b *turboBlock) codeGroups() {
	decoded := append([]float32(nil), b.y...)
	b.f.RoundGroups(decoded, func(c *Columns) {
		b.start(c)
		b.code(c, &b.best, b.z, b.loss)
		b.attempts(c, 0.84, 0.92, 1.08, 1.16)
		b.alternate(c)
		b.leave(c)
	})
	for range refinements {
		b.f.Refine(b.y, decoded, func(c *Columns) {
			b.enter(c)
			b.attempts(c, 1)
			b.alternate(c)
			b.attempts(c, 0.95, 1.05)
			b.alternate(c)
			b.leave(c)
		})
	}
}

// start finds scales without feedback, from the root mean square on.
func (b *turboBlock) start(c *Columns) {
	m, n := len(c.Index), b.n
	t := c.Targets[:m*n]
	one := b.z[:m*n]
	for i := range one {
		one[i] = 1
	}
	b.ratio(t, one, c.Pivots) // Σ d·t / Σ d, of which the denominator stays
	kernel.Mul(b.yz[:m*n], t, t)
	kernel.MulNN(b.sum, n, b.weight, m, 1, b.yz, n, m, n)
	for r, d := range b.sum2 {
		b.trial.scale[r] = float32(math.Sqrt(float64(b.sum[r] / d)))
	}
	for range 4 {
		b.trial.store()
		copy(b.best.scale, b.trial.scale)
		copy(b.best.inverse, b.trial.inverse)
		for j := range m {
			z := b.yz[j*n : (j+1)*n]
			for r, v := range t[j*n : (j+1)*n] {
				z[r] = b.cells.signed(float32(v * b.best.inverse[r]))
			}
		}
		b.ratio(t, b.yz[:m*n], c.Pivots)
	}
	b.trial.store()
	copy(b.best.scale, b.trial.scale)
	copy(b.best.inverse, b.trial.inverse)
}

// enter takes up the columns of c as they are coded.
func (b *turboBlock) enter(c *Columns) {
	m, n := len(c.Index), b.n
	s := b.scales[int(c.Index[0])/b.f.group]
	copy(b.best.scale, s.scale)
	copy(b.best.inverse, s.inverse)
	for j, col := range c.Index {
		copy(b.z[j*n:(j+1)*n], b.level[int(col)*n:])
	}
	kernel.Sub(b.try[:m*n], c.Targets[:m*n], c.Decoded[:m*n])
	kernel.MulNN(b.yz, n, c.Feedback, c.Stride, m, b.try, n, m, n)
	kernel.Mul(b.yz[:m*n], b.yz[:m*n], b.yz[:m*n])
	copy(b.weight, c.Pivots)
	kernel.MulNN(b.loss, n, b.weight, m, 1, b.yz, n, m, n)
}

// leave keeps what was found for the columns of c.
func (b *turboBlock) leave(c *Columns) {
	n := b.n
	s := b.scales[int(c.Index[0])/b.f.group]
	copy(s.scale, b.best.scale)
	copy(s.inverse, b.best.inverse)
	for j, col := range c.Index {
		z, out := b.z[j*n:(j+1)*n], c.Decoded[j*n:(j+1)*n]
		copy(b.level[int(col)*n:], z)
		kernel.Mul(out, z, b.best.scale)
	}
}

// finish gives rows that cost more than with method rtn what that makes of them,
// and stores all.
func (b *turboBlock) finish(dst [][]byte, st *Stats) error {
	cols, group := b.f.cols, b.f.group
	plain, decoded := make([]float32, len(b.y)), make([]float32, len(b.y))
	codes, plainCodes := make([]byte, len(b.y)), make([]byte, len(b.y))
	plainScales := make([]uint16, b.own*b.groups)
	for i := range plainScales {
		at := i * group
		s := b.cells.fit(plainCodes[at:at+group], b.y[at:at+group], RTN)
		if math.IsInf(float64(half.ToF32(s)), 0) {
			return errRange
		}
		plainScales[i] = s
		for j, c := range plainCodes[at : at+group] {
			plain[at+j] = half.ToF32(s) * b.cells.value(c)
		}
	}
	for r := range b.own {
		for col := range cols {
			z := b.level[col*b.n+r]
			codes[r*cols+col] = b.cells.code(z)
			decoded[r*cols+col] = b.scales[col/group].scale[r] * z
		}
	}
	own, rtn := b.f.losses(b.y, decoded), b.f.losses(b.y, plain)
	for _, e := range b.f.losses(b.y, nil) {
		st.OutputEnergy += e
	}
	for r := range b.own {
		at, end := r*cols, (r+1)*cols
		fell := !(own[r] <= rtn[r])
		if fell {
			copy(codes[at:end], plainCodes[at:end])
			copy(decoded[at:end], plain[at:end])
			own[r] = rtn[r]
			st.Fallbacks++
		}
		st.OutputError += own[r]
		st.OutputRTN += rtn[r]
		for g := range b.groups {
			i := r*b.groups + g
			s := plainScales[i]
			if !fell {
				s = half.FromF32(b.scales[g].scale[r])
			}
			putHalf(dst[1], i, s)
		}
		bitpack.Pack(dst[0][at*b.t.Bits/8:], codes[at:end], b.t.Bits)
	}
	for i, v := range b.y {
		e := float64(v - decoded[i])
		st.Error += float64(e * e)
	}
	return nil
}

var errRange = errors.New("row has weights beyond the range of fp16 scales")
