package quant

import (
	"errors"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/bitpack"
	"github.com/smelt-go/smelt/internal/kernel"
)

// lanes is how many rows are coded side by side.
const lanes = kernel.FeedbackRows

// encodeFeedback codes rows with error feedback. Scale and bias of a group are
// found when its turn comes, for its targets:
//
//  1. the peers' rule, and ranges clipped at both ends with least squares from the
//     best of them, by the error weighted with the pivots, without feedback;
//  2. wider and narrower scales about the better one, and shifted ones, by what
//     they really cost: the group is coded with feedback for each;
//  3. for the codes of the best, least squares in the norm of the group, Σ D_j·(δ·U)_j²,
//     and coding again, while that helps.
//
// Then groups are coded again, each with all others as they are (Refine), by step 3
// and scales a little off, where that makes the whole better.
//
// Everything is judged with scale and bias as they are stored. A row that would
// cost more than with the peers' rule gets that.
func (a Affine) encodeFeedback(dst [][]byte, r Rows, st *Stats) error {
	f := r.Feedback
	if f == nil {
		return errors.New("quant: error feedback needs a calibration")
	}
	if f.cols != r.Cols || f.group != a.Group || f.turned {
		return errors.New("quant: the calibration is for another matrix")
	}
	rows := len(r.W) / r.Cols
	groups := r.Cols / a.Group
	decoded := append([]float32(nil), r.W...)
	codes := make([]byte, len(r.W))
	scales, biases := make([]float32, rows*groups), make([]float32, rows*groups)
	g := newGroupFitter(a, r.DType)
	// visit fits a group, for all rows.
	visit := func(c *Columns, fit func(c *Columns, at int)) {
		group := int(c.Index[0]) / a.Group
		g.prepare(c)
		for at := 0; at < c.Rows; at += lanes {
			n := max(0, min(lanes, rows-at))
			for i := range n {
				row := (at+i)*groups + group
				g.best.Scale[i], g.best.Bias[i] = scales[row], biases[row]
				for j, col := range c.Index {
					g.codes[j*lanes+i] = float32(codes[(at+i)*r.Cols+int(col)])
				}
			}
			fit(c, at)
			for i := range n {
				row := (at+i)*groups + group
				scales[row], biases[row] = g.best.Scale[i], g.best.Bias[i]
			}
			for j, col := range c.Index {
				for i := range n {
					codes[(at+i)*r.Cols+int(col)] = byte(g.codes[j*lanes+i])
				}
				out := c.Decoded[j*c.Rows+at:][:lanes]
				for i := range out {
					out[i] = float32(g.codes[j*lanes+i]*g.best.Scale[i]) + g.best.Bias[i]
				}
			}
		}
	}
	f.RoundGroups(decoded, func(c *Columns) { visit(c, g.fit) })
	for range refinements {
		f.Refine(r.W, decoded, func(c *Columns) { visit(c, g.refine) })
	}
	a.fallBack(r, decoded, codes, scales, biases, st)
	n := a.Group * a.Bits / 8
	for i := range scales {
		putElement(dst[1], i, scales[i], r.DType)
		putElement(dst[2], i, biases[i], r.DType)
		bitpack.Pack(dst[0][i*n:], codes[i*a.Group:][:a.Group], a.Bits)
	}
	return nil
}

// refinements is how often groups are coded again. Later ones bring little.
const refinements = 1

// fallBack gives rows that cost more than with the peers' rule what that makes of
// them, and counts.
func (a Affine) fallBack(r Rows, decoded []float32, codes []byte, scales, biases []float32, st *Stats) {
	rows, groups := len(r.W)/r.Cols, r.Cols/a.Group
	plain := make([]float32, len(r.W))
	plainCodes := make([]byte, len(r.W))
	plainScales, plainBiases := make([]float32, len(scales)), make([]float32, len(scales))
	for g := range scales {
		w, q := r.W[g*a.Group:][:a.Group], plainCodes[g*a.Group:][:a.Group]
		s, b := a.minmax(w)
		a.code(q, w, s, b)
		s, b = round(s, r.DType), round(b, r.DType)
		plainScales[g], plainBiases[g] = s, b
		for i, c := range q {
			plain[g*a.Group+i] = float32(float32(c)*s) + b
		}
	}
	own, rtn := r.Feedback.losses(r.W, decoded), r.Feedback.losses(r.W, plain)
	// Of the energy, which is for the report only, a sample will do.
	sample := (rows + 7) / 8
	for _, e := range r.Feedback.losses(r.W[:sample*r.Cols], nil) {
		st.OutputEnergy += e * float64(rows) / float64(sample)
	}
	for i := range rows {
		at, end := i*r.Cols, (i+1)*r.Cols
		st.OutputRTN += rtn[i]
		if !(own[i] <= rtn[i]) {
			copy(decoded[at:end], plain[at:end])
			copy(codes[at:end], plainCodes[at:end])
			copy(scales[i*groups:(i+1)*groups], plainScales[i*groups:])
			copy(biases[i*groups:(i+1)*groups], plainBiases[i*groups:])
			own[i] = rtn[i]
			st.Fallbacks++
		}
		st.OutputError += own[i]
	}
	for i, w := range r.W {
		e := float64(w - decoded[i])
		st.Error += float64(e * e)
	}
}

// groupFitter finds scales and biases of a group for 32 rows at a time.
type groupFitter struct {
	a    Affine
	dt   checkpoint.DType
	top  int
	ones []float32 // 1·U by column, in lanes

	codes, trial, errs []float32 // [group, 32]
	best               kernel.FeedbackParams
	loss               [lanes]float32

	d, d1     []float32 // pivots, and pivots times 1·U
	s11       float64   // Σ D·(1·U)²
	yt, yq, z []float32 // [group, 32]
	center    [lanes]float32
	lo, hi    [lanes]float32
	wMean     [lanes]float32 // Σ d·(t − center)
	ww        [lanes]float32 // Σ d·(t − center)²
	dSum      float32
}

func newGroupFitter(a Affine, dt checkpoint.DType) *groupFitter {
	n := a.Group
	m := func() []float32 { return make([]float32, n*lanes) }
	return &groupFitter{a: a, dt: dt, top: 1<<a.Bits - 1, codes: m(), trial: m(), errs: m(), yt: m(), yq: m(), z: m(),
		ones: make([]float32, n), d: make([]float32, n), d1: make([]float32, n)}
}

// prepare computes what a group's rows have in common.
func (g *groupFitter) prepare(c *Columns) {
	g.dSum, g.s11 = 0, 0
	copy(g.d, c.Pivots)
	for j := range c.Index {
		var s float32
		for _, v := range c.Feedback[j*c.Stride:][:j+1] {
			s += v
		}
		g.ones[j] = s
		g.d1[j] = float32(g.d[j] * s)
		g.dSum += g.d[j]
		g.s11 += float64(float64(g.d1[j]) * float64(s))
	}
}

// fit finds best, codes and loss for rows at to at+32.
func (g *groupFitter) fit(c *Columns, at int) {
	t, ldt, n := c.Targets[at:], c.Rows, g.a.Group
	g.ranges(t, ldt)
	var rtn kernel.FeedbackParams
	var w [maxGroup]float32
	for i := range lanes {
		for j := range n {
			w[j] = t[j*ldt+i]
		}
		rtn.Scale[i], rtn.Bias[i] = g.a.minmax(w[:n])
	}
	g.store(&rtn)
	g.best = rtn
	kernel.FeedbackRound(g.codes, g.errs, &g.loss, t, ldt, n, c.Feedback, c.Stride, g.d, &g.best, g.top)
	p := g.clipped(t, ldt, &rtn, 5, 3).best
	g.try(c, t, &p)
	for _, f := range [...]float32{0.82, 0.88, 0.94, 1.06, 1.12} {
		p = g.best
		for i := range lanes {
			mid := float32(p.Scale[i]*float32(g.top)/2) + p.Bias[i]
			p.Scale[i] *= f
			p.Bias[i] = mid - float32(p.Scale[i]*float32(g.top)/2)
		}
		g.try(c, t, &p)
	}
	for _, f := range [...]float32{-0.4, -0.2, 0.2, 0.4} {
		p = g.best
		for i := range lanes {
			p.Bias[i] += float32(f * p.Scale[i])
		}
		g.try(c, t, &p)
	}
	g.alternate(c, t)
}

// alternate repeats least squares and coding.
func (g *groupFitter) alternate(c *Columns, t []float32) {
	n := g.a.Group
	kernel.MulNN(g.yt, lanes, c.Feedback, c.Stride, n, t, c.Rows, n, lanes)
	for range 4 {
		p, changed := g.solve(c, n)
		if !changed || !g.try(c, t, &p) {
			break
		}
	}
}

// refine improves on best and codes.
func (g *groupFitter) refine(c *Columns, at int) {
	t, n := c.Targets[at:], g.a.Group
	// What the codes cost as they are.
	for j := range n {
		kernel.Sub(g.z[j*lanes:(j+1)*lanes], t[j*c.Rows:][:lanes], c.Decoded[j*c.Rows+at:][:lanes])
		copy(g.center[:], t[j*c.Rows:][:lanes]) // any finite number
	}
	kernel.MulNN(g.yq, lanes, c.Feedback, c.Stride, n, g.z, lanes, n, lanes)
	kernel.Mul(g.yq, g.yq, g.yq)
	kernel.MulNN(g.loss[:], lanes, g.d, n, 1, g.yq, lanes, n, lanes)
	p := g.best
	g.try(c, t, &p)
	g.alternate(c, t)
	for _, f := range [...]float32{0.95, 1.05} {
		p = g.best
		for i := range lanes {
			mid := float32(p.Scale[i]*float32(g.top)/2) + p.Bias[i]
			p.Scale[i] *= f
			p.Bias[i] = mid - float32(p.Scale[i]*float32(g.top)/2)
		}
		g.try(c, t, &p)
	}
	g.alternate(c, t)
}

// ranges finds the range of each row, and sums of the targets.
func (g *groupFitter) ranges(t []float32, ldt int) {
	copy(g.lo[:], t[:lanes])
	copy(g.hi[:], t[:lanes])
	for j := 1; j < g.a.Group; j++ {
		for i, x := range t[j*ldt:][:lanes] {
			g.lo[i], g.hi[i] = min(g.lo[i], x), max(g.hi[i], x)
		}
	}
	for i := range lanes {
		g.center[i] = float32(g.lo[i]/2) + float32(g.hi[i]/2)
	}
	g.wMean, g.ww = [lanes]float32{}, [lanes]float32{}
	for j, d := range g.d {
		for i, x := range t[j*ldt:][:lanes] {
			x -= g.center[i]
			v := float32(d * x)
			g.wMean[i] += v
			g.ww[i] += float32(v * x)
		}
	}
}

// store rounds scales and biases and completes them.
func (g *groupFitter) store(p *kernel.FeedbackParams) {
	for i := range lanes {
		s, b := round(p.Scale[i], g.dt), round(p.Bias[i], g.dt)
		inv := 1 / s
		if s == 0 || s-s != 0 || inv-inv != 0 || b-b != 0 {
			s, inv, b = 0, 0, round(g.center[i], g.dt)
		}
		p.Scale[i], p.Inverse[i], p.Bias[i] = s, inv, b
	}
}

// try codes with other parameters and keeps them where they are better; false if
// they are nowhere.
func (g *groupFitter) try(c *Columns, t []float32, p *kernel.FeedbackParams) bool {
	g.store(p)
	n := g.a.Group
	var loss [lanes]float32
	kernel.FeedbackRound(g.trial, g.errs, &loss, t, c.Rows, n, c.Feedback, c.Stride, g.d, p, g.top)
	var better [lanes]bool
	any := false
	for i := range lanes {
		if loss[i] < g.loss[i] {
			better[i], any = true, true
			g.loss[i] = loss[i]
			g.best.Scale[i], g.best.Inverse[i], g.best.Bias[i] = p.Scale[i], p.Inverse[i], p.Bias[i]
		}
	}
	if any {
		for j := range n {
			to, from := g.codes[j*lanes:][:lanes], g.trial[j*lanes:][:lanes]
			for i := range lanes {
				if better[i] {
					to[i] = from[i]
				}
			}
		}
	}
	return any
}

// solve is least squares for the best codes in the norm of the group.
func (g *groupFitter) solve(c *Columns, n int) (p kernel.FeedbackParams, changed bool) {
	// Codes about the middle of their range: the sums below cancel less.
	mid := float32(g.top) / 2
	kernel.AddScalar(g.z, g.codes, -mid)
	kernel.MulNN(g.yq, lanes, c.Feedback, c.Stride, n, g.z, lanes, n, lanes)
	var q, t, qq, qt [lanes]float32
	kernel.MulNN(q[:], lanes, g.d1, n, 1, g.yq, lanes, n, lanes)
	kernel.MulNN(t[:], lanes, g.d1, n, 1, g.yt, lanes, n, lanes)
	kernel.Mul(g.z, g.yq, g.yq)
	kernel.MulNN(qq[:], lanes, g.d, n, 1, g.z, lanes, n, lanes)
	kernel.Mul(g.z, g.yq, g.yt)
	kernel.MulNN(qt[:], lanes, g.d, n, 1, g.z, lanes, n, lanes)
	p = g.best
	for i := range lanes {
		det := float64(g.s11*float64(qq[i])) - float64(float64(q[i])*float64(q[i]))
		if !(det > 1e-6*g.s11*float64(qq[i])) {
			continue
		}
		s := round(float32((float64(g.s11*float64(qt[i]))-float64(float64(q[i])*float64(t[i])))/det), g.dt)
		b := float32((float64(t[i])-float64(float64(s)*float64(q[i])))/g.s11 - float64(float64(s)*float64(mid)))
		if s != p.Scale[i] || round(b, g.dt) != p.Bias[i] {
			p.Scale[i], p.Bias[i], changed = s, b, true
		}
	}
	return p, changed
}
