package runtime

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/mil"
)

// Normalization, in float64 with one rounding of the result.

var normLowerers = map[string]lowerer{
	"batch_norm":          lowerBatchNorm,
	"instance_norm":       lowerInstanceNorm,
	"layer_norm":          lowerLayerNorm,
	"l2_norm":             lowerL2Norm,
	"local_response_norm": lowerLocalResponseNorm,
}

// moments are the mean and the biased variance of a row.
func moments(row []float64) (mu, variance float64) {
	mu = mean(row)
	for _, x := range row {
		variance += float64((x - mu) * (x - mu))
	}
	return mu, variance / float64(len(row))
}

// at is element i of an optional parameter, or def.
func (t *Tensor) at(i int, def float64) float64 {
	if t == nil {
		return def
	}
	return float64(t.F[i])
}

func wantLen(name string, t *Tensor, n int) error {
	if t != nil && t.Len() != n {
		return fmt.Errorf("%s is %v, want %d elements", name, t, n)
	}
	return nil
}

func lowerBatchNorm(l *lowering, op *mil.Op) (instr, error) {
	return channelNorm(l, op, []string{"mean", "variance"}, func(x []float32, p []*Tensor, c int) (float64, float64) {
		return p[0].at(c, 0), p[1].at(c, 1)
	})
}

func lowerInstanceNorm(l *lowering, op *mil.Op) (instr, error) {
	return channelNorm(l, op, nil, func(x []float32, _ []*Tensor, _ int) (float64, float64) {
		row := make([]float64, len(x))
		for i, v := range x {
			row[i] = float64(v)
		}
		return moments(row)
	})
}

// channelNorm lowers gamma*(x-mean)/sqrt(variance+epsilon)+beta for each
// instance and channel; stats gives the moments.
func channelNorm(l *lowering, op *mil.Op, params []string, stats func(x []float32, p []*Tensor, c int) (mu, variance float64)) (instr, error) {
	names := append([]string{"x", "gamma", "beta"}, params...)
	in, err := l.operands(op, names...)
	if err != nil {
		return instr{}, err
	}
	eps, err := l.scalars(op, "epsilon")
	if err != nil {
		return instr{}, err
	}
	return l.like(op, in[0], false, func(f *frame, x, out *Tensor) error {
		_, channels, inner := axisSplit(x.Shape, 1)
		p := make([]*Tensor, len(in)-1)
		for i, s := range in[1:] {
			p[i] = f.optional(s)
			if err := wantLen(names[i+1], p[i], channels); err != nil {
				return err
			}
		}
		f.par(len(x.F)/max(inner, 1), 1+4096/max(inner, 1), func(lo, hi int) {
			for r := lo; r < hi; r++ {
				c := r % channels
				src, dst := x.F[r*inner:(r+1)*inner], out.F[r*inner:(r+1)*inner]
				mu, variance := stats(src, p[2:], c)
				g := p[0].at(c, 1) / math.Sqrt(variance+eps[0])
				b := p[1].at(c, 0)
				for i, v := range src {
					dst[i] = float32(float64((float64(v)-mu)*g) + b)
				}
			}
		})
		return nil
	}), nil
}

func lowerLayerNorm(l *lowering, op *mil.Op) (instr, error) {
	in, err := l.operands(op, "x", "gamma", "beta")
	if err != nil {
		return instr{}, err
	}
	eps, err := l.scalars(op, "epsilon")
	if err != nil {
		return instr{}, err
	}
	c, err := l.known(op, "axes")
	if err != nil {
		return instr{}, err
	}
	axes, err := c.ReducedAxes("axes", c.T("x").Rank())
	if err != nil {
		return instr{}, err
	}
	return l.like(op, in[0], false, func(f *frame, x, out *Tensor) error {
		p := planAxes(x.Shape, axes)
		gamma, beta := f.optional(in[1]), f.optional(in[2])
		if err := wantLen("gamma", gamma, len(p.reduced)); err != nil {
			return err
		}
		if err := wantLen("beta", beta, len(p.reduced)); err != nil {
			return err
		}
		p.eachRow(f, x, func(r int, row []float64) {
			mu, variance := moments(row)
			s, at := 1/math.Sqrt(variance+eps[0]), p.base(r)
			for i, v := range row {
				out.F[at+p.reduced[i]] = float32(float64((v-mu)*s*gamma.at(i, 1)) + beta.at(i, 0))
			}
		})
		return nil
	}), nil
}

func lowerL2Norm(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	eps, err := l.scalars(op, "epsilon")
	if err != nil {
		return instr{}, err
	}
	return l.like(op, x, false, func(f *frame, x, out *Tensor) error {
		n := len(x.Shape)
		if n < 3 {
			return fmt.Errorf("x is %v, want rank at least 3", x)
		}
		p := planAxes(x.Shape, []int{n - 3, n - 2, n - 1})
		p.eachRow(f, x, func(r int, row []float64) {
			s, at := math.Sqrt(sumSquare(row)+eps[0]), p.base(r)
			for i, v := range row {
				out.F[at+i] = float32(v / s)
			}
		})
		return nil
	}), nil
}

func lowerLocalResponseNorm(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	v, err := l.scalars(op, "size", "alpha", "beta", "k")
	if err != nil {
		return instr{}, err
	}
	size, alpha, beta, k := int(v[0]), v[1], v[2], v[3]
	return l.like(op, x, false, func(f *frame, x, out *Tensor) error {
		p := planAxes(x.Shape, []int{1})
		before := size / 2
		p.eachRow(f, x, func(r int, row []float64) {
			at := p.base(r)
			for i, v := range row {
				lo := max(0, i-before)
				hi := min(len(row), i-before+size)
				d := k + float64(alpha/float64(size)*sumSquare(row[lo:hi]))
				out.F[at+p.reduced[i]] = float32(v / math.Pow(d, beta))
			}
		})
		return nil
	}), nil
}
