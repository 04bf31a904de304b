package quant

import (
	"math"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
)

// Method Refit minimises Σ (w − (scale·q + bias))² over the codes q of a group and
// the scale and bias as they are stored. With importances of columns as weights d it
// is refit_weighted.go's.
//
// The peers' rule is the first candidate, so no group ends worse than with it.
// Other starts clip the ends of the range. From each, least squares and coding
// alternate: for fixed codes the best scale and bias solve the normal equations
//
//	scale = (D·Σdqw − Σdq·Σdw) / (D·Σdq² − (Σdq)²),  bias = (Σdw − scale·Σdq)/D,
//
// D = Σd, which is the number of columns here; scale is rounded to the stored type and its neighbours are tried too,
// each with the bias that is best for it after rounding.
type fitter struct {
	w      []float32
	bits   int
	dt     checkpoint.DType
	sums   moments // of w alone
	center float32 // subtracted from w in the sums
	first  []byte  // codes of the peers' rule
}

// moments are weighted sums over a group, of w relative to the centre.
type moments struct{ d, w, ww, q, qq, qw float64 }

// candidate is a pair of stored parameters with the error of its codes.
type candidate struct {
	scale, bias float32
	err         float64
	m           moments
}

// refit improves on scale and bias; codes are replaced.
func (f *fitter) refit(codes []byte, w []float32, bits int, dt checkpoint.DType, scale, bias float32) (float32, float32) {
	f.w, f.bits, f.dt = w, bits, dt
	lo, hi := minMax(w)
	f.center = float32(lo/2) + float32(hi/2)
	f.base()
	best := f.measure(round(scale, dt), round(bias, dt))
	if lo == hi {
		if c := f.measure(best.scale, round(lo, dt)); c.err < best.err {
			best = c
		}
	}
	best = f.descend(best)
	if lo < hi {
		best = f.search(best, lo, hi)
	}
	// Moments are sums of float32: what is a little better by them is compared
	// once more with the peers' rule.
	first := append(f.first[:0], codes...)
	f.first = first
	f.assign(codes, best.scale, best.bias)
	if f.exact(codes, best.scale, best.bias) > f.exact(first, round(scale, dt), round(bias, dt)) {
		copy(codes, first)
		return scale, bias
	}
	return best.scale, best.bias
}

// exact is the error of codes, in float64.
func (f *fitter) exact(codes []byte, scale, bias float32) (sum float64) {
	for i, x := range f.w {
		e := float64(float32(float32(codes[i])*scale)+bias) - float64(x)
		sum += float64(e * e)
	}
	return sum
}

// search tries clipped ranges.
func (f *fitter) search(best candidate, lo, hi float32) candidate {
	step := [...]float32{2: 0.08, 3: 0.06, 4: 0.04, 5: 0.025, 6: 0.015, 8: 0.006}[f.bits]
	const count = 6
	n := float32(int(1)<<f.bits - 1)
	span := hi - lo
	// The best few clipped ranges as they are, then least squares from those.
	var starts [3]candidate
	for i := range starts {
		starts[i].err = math.Inf(1)
	}
	for i := range count {
		for j := range count {
			l, h := lo+float32(float32(i)*step*span), hi-float32(float32(j)*step*span)
			s := round((h-l)/n, f.dt)
			if s == 0 || math.IsInf(float64(s), 0) {
				continue
			}
			c := f.measure(s, round(l, f.dt))
			for k := range starts {
				if c.err < starts[k].err {
					c, starts[k] = starts[k], c
				}
			}
		}
	}
	for _, c := range starts {
		if math.IsInf(c.err, 1) {
			break
		}
		if c = f.descend(c); c.err < best.err {
			best = c
		}
	}
	return best
}

// descend alternates least squares and coding while that helps.
func (f *fitter) descend(c candidate) candidate {
	for range 6 {
		next := f.solve(c)
		if next.err >= c.err {
			break
		}
		c = next
	}
	return c
}

// solve finds parameters for the codes of c and codes the group with them.
func (f *fitter) solve(c candidate) candidate {
	m := c.m
	det := float64(m.d*m.qq) - float64(m.q*m.q)
	if det <= 0 {
		return c
	}
	s0 := round(float32((float64(m.d*m.qw)-float64(m.q*m.w))/det), f.dt)
	if s0 == 0 || math.IsInf(float64(s0), 0) {
		return c
	}
	bestS, bestB, bestErr := c.scale, c.bias, math.Inf(1)
	for by := int32(-1); by <= 1; by++ {
		s := neighbour(s0, by, f.dt)
		b := round(float32((m.w-float64(float64(s)*m.q))/m.d+float64(f.center)), f.dt)
		if e := m.err(s, b-f.center); e < bestErr {
			bestS, bestB, bestErr = s, b, e
		}
	}
	return f.measure(bestS, bestB)
}

// err is the error of the codes that m sums up, with the given parameters.
func (m *moments) err(scale, bias float32) float64 {
	s, b := float64(scale), float64(bias)
	return m.ww + float64(s*s*m.qq) + float64(b*b*m.d) - float64(2*s*m.qw) - float64(2*b*m.w) + float64(2*s*b*m.q)
}

// base sums what does not depend on codes.
func (f *fitter) base() {
	f.sums = moments{}
	f.sums.d = float64(len(f.w))
	for _, x := range f.w {
		v := float64(x - f.center)
		f.sums.w += v
		f.sums.ww += float64(v * v)
	}
}

// measure codes the group with stored parameters and sums up.
func (f *fitter) measure(scale, bias float32) candidate {
	m := f.sums
	if scale == 0 {
		return candidate{scale, bias, m.err(0, bias-f.center), m}
	}
	inv := 1 / scale
	if math.IsInf(float64(inv), 0) { // a scale next to nothing
		return candidate{scale, bias, math.Inf(1), m}
	}
	top := int32(1)<<f.bits - 1
	q, qq, qw := kernel.AffineMoments(f.w, bias, inv, int(top), f.center)
	m.q, m.qq, m.qw = float64(q), float64(qq), float64(qw)
	return candidate{scale, bias, m.err(scale, bias-f.center), m}
}

// assign stores the codes that measure counted.
func (f *fitter) assign(codes []byte, scale, bias float32) {
	if scale == 0 {
		clear(codes)
		return
	}
	inv := 1 / scale
	top := int32(1)<<f.bits - 1
	for i, x := range f.w {
		codes[i] = byte(nearestCode(x, bias, inv, top))
	}
}

// nearestCode is the code for a weight. Adding 1.5·2²³ rounds to an integer, ties to
// even, in the low bits.
func nearestCode(x, bias, inv float32, top int32) int32 {
	const magic = 3 << 22
	v := min(max(float32((x-bias)*inv), 0), float32(top))
	return int32(math.Float32bits(v+magic)) - 0x4b400000
}
