package quant

import (
	"math"

	"github.com/smelt-go/smelt/internal/bitpack"
	"github.com/smelt-go/smelt/internal/kernel"
)

// encodeWeighted is method Refit with an importance: the search of refit.go for 32
// rows at a time, with sums that are fused where a kernel level can. So codes depend
// on the level, as the importance, which calibration computes, does anyway.
//
// Output errors are those of a diagonal Hessian, Σ d·(w − decoded)². A group that
// would cost more than with the peers' rule gets that.
func (a Affine) encodeWeighted(dst [][]byte, r Rows, st *Stats) {
	rows, groups := len(r.W)/r.Cols, r.Cols/a.Group
	n := a.Group * a.Bits / 8
	g := newGroupFitter(a, r.DType)
	t := make([]float32, a.Group*lanes)
	var start kernel.FeedbackParams
	var own, plain [maxGroup]byte
	var back [lanes]bool
	for at := 0; at < rows; at += lanes {
		count := min(lanes, rows-at)
		clear(back[:])
		for group := range groups {
			d := r.Importance[group*a.Group:][:a.Group]
			g.weigh(d)
			clear(t)
			for i := range count {
				w := r.W[(at+i)*r.Cols+group*a.Group:][:a.Group]
				for j, x := range w {
					t[j*lanes+i] = x
				}
				start.Scale[i], start.Bias[i] = a.minmax(w)
			}
			g.ranges(t, lanes)
			g.store(&start)
			s := g.clipped(t, lanes, &start, 6, 6)
			for range 2 {
				s.around(6)
			}
			p := &s.best
			for i := range count {
				where := (at+i)*groups + group
				w := r.W[where*a.Group:][:a.Group]
				scale, bias := a.minmax(w)
				a.code(plain[:a.Group], w, scale, bias)
				scale, bias = round(scale, r.DType), round(bias, r.DType)
				rtn := weightedError(plain[:a.Group], w, d, scale, bias)
				if s := p.Scale[i]; s == 0 {
					clear(own[:a.Group])
				} else {
					kernel.AffineCode(own[:a.Group], w, s, p.Bias[i], g.top)
				}
				codes, e := own[:a.Group], weightedError(own[:a.Group], w, d, p.Scale[i], p.Bias[i])
				if e <= rtn {
					scale, bias = p.Scale[i], p.Bias[i]
				} else {
					codes, e, back[i] = plain[:a.Group], rtn, true
				}
				putElement(dst[1], where, scale, r.DType)
				putElement(dst[2], where, bias, r.DType)
				bitpack.Pack(dst[0][where*n:], codes, a.Bits)
				st.Error += float64(kernel.AffineError(codes, w, scale, bias))
				st.OutputError += e
				st.OutputRTN += rtn
				st.OutputEnergy += weightedEnergy(w, d)
			}
		}
		for _, b := range back {
			if b {
				st.Fallbacks++
			}
		}
	}
}

// weigh sets the weights of columns.
func (g *groupFitter) weigh(d []float32) {
	g.dSum = 0
	for j, v := range d {
		g.d[j] = v
		g.dSum += v
	}
}

// weightedError is Σ d·(scale·code + bias − w)².
func weightedError(codes []byte, w, d []float32, scale, bias float32) float64 {
	var sum [4]float64
	d, codes = d[:len(w)], codes[:len(w)]
	for i, x := range w {
		e := float64(float32(float32(codes[i])*scale)+bias) - float64(x)
		sum[i&3] += float64(float64(d[i]) * float64(e*e))
	}
	return sum[0] + sum[1] + sum[2] + sum[3]
}

func weightedEnergy(w, d []float32) float64 {
	var sum [4]float64
	d = d[:len(w)]
	for i, x := range w {
		sum[i&3] += float64(float64(d[i]) * float64(float64(x)*float64(x)))
	}
	return sum[0] + sum[1] + sum[2] + sum[3]
}

// clipSteps are the steps in which ranges are clipped, by bits, as a share of the
// range.
var clipSteps = [...]float32{2: 0.08, 3: 0.06, 4: 0.04, 5: 0.025, 6: 0.015, 8: 0.006}

// clipped searches ranges clipped at up to count−1 steps at either end by the error
// weighted with d, without feedback; then least squares and coding alternate.
func (g *groupFitter) clipped(t []float32, ldt int, start *kernel.FeedbackParams, count, turns int) laneSearch {
	s := laneSearch{g: g, t: t, ldt: ldt, step: clipSteps[g.a.Bits]}
	for i := range s.err {
		s.err[i] = float32(math.Inf(1))
	}
	s.measure(start)
	var p kernel.FeedbackParams
	for i := range count {
		for j := range count {
			for r := range lanes {
				span := g.hi[r] - g.lo[r]
				lo := g.lo[r] + float32(float32(i)*s.step*span)
				hi := g.hi[r] - float32(float32(j)*s.step*span)
				p.Scale[r], p.Bias[r] = (hi-lo)/float32(g.top), lo
			}
			g.store(&p)
			s.measure(&p)
		}
	}
	s.descend(turns)
	return s
}

// laneSearch keeps the best parameters of 32 rows.
type laneSearch struct {
	g    *groupFitter
	t    []float32
	ldt  int
	step float32 // of ranges, as a share
	best kernel.FeedbackParams
	err  [lanes]float32
	sums kernel.LaneSums // of the codes of best
}

// measure codes with p and keeps it where it is better; false if that is nowhere.
func (s *laneSearch) measure(p *kernel.FeedbackParams) bool {
	g := s.g
	lp := kernel.LaneParams{Inverse: p.Inverse, Bias: p.Bias, Center: g.center}
	var sums kernel.LaneSums
	kernel.LaneMoments(&sums, s.t, s.ldt, g.a.Group, g.d, &lp, g.top)
	any := false
	for i := range lanes {
		c, b := p.Scale[i], p.Bias[i]-g.center[i]
		e := g.ww[i] + float32(c*float32(float32(c*sums.QQ[i])-float32(2*sums.QW[i]))) +
			float32(b*float32(float32(b*g.dSum)-float32(2*g.wMean[i])+float32(2*float32(c*sums.Q[i]))))
		if e < s.err[i] {
			s.err[i], any = e, true
			s.best.Scale[i], s.best.Inverse[i], s.best.Bias[i] = c, p.Inverse[i], p.Bias[i]
			s.sums.Q[i], s.sums.QQ[i], s.sums.QW[i] = sums.Q[i], sums.QQ[i], sums.QW[i]
		}
	}
	return any
}

// around tries ranges whose ends are a third of the last step, or two, off those of
// the best.
func (s *laneSearch) around(turns int) {
	s.step /= 3
	from := s.best
	top := float32(s.g.top)
	var p kernel.FeedbackParams
	for i := -2; i <= 2; i++ {
		for j := -2; j <= 2; j++ {
			if i == 0 && j == 0 {
				continue
			}
			for r := range lanes {
				span := float32(from.Scale[r] * top)
				lo := from.Bias[r] + float32(float32(i)*s.step*span)
				hi := from.Bias[r] + span + float32(float32(j)*s.step*span)
				p.Scale[r], p.Bias[r] = (hi-lo)/top, lo
			}
			s.g.store(&p)
			s.measure(&p)
		}
	}
	s.descend(turns)
}

// descend alternates least squares and coding while that helps, turns times at most.
func (s *laneSearch) descend(turns int) {
	var p kernel.FeedbackParams
	for range turns {
		s.solve(&p)
		s.g.store(&p)
		if !s.measure(&p) {
			break
		}
	}
}

// solve is least squares for the codes of best.
func (s *laneSearch) solve(p *kernel.FeedbackParams) {
	g := s.g
	for r := range lanes {
		q, qq, qw := float64(s.sums.Q[r]), float64(s.sums.QQ[r]), float64(s.sums.QW[r])
		d, w := float64(g.dSum), float64(g.wMean[r])
		det := float64(d*qq) - float64(q*q)
		p.Scale[r], p.Bias[r] = s.best.Scale[r], s.best.Bias[r]
		if det > 0 {
			p.Scale[r] = round(float32((float64(d*qw)-float64(q*w))/det), g.dt)
			p.Bias[r] = float32((w-float64(float64(p.Scale[r])*q))/d + float64(g.center[r]))
		}
	}
}
