package speculate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is an estimate with a confidence interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Bootstrap resamples prompts, which are independent; tokens of one prompt are
// not. It is the bootstrap-t: every resample is studentized by its own
// linearised standard error, so that intervals keep their level with a few
// dozen prompts. The same seed gives the same interval everywhere.
type Bootstrap struct {
	Resamples int     // 0: DefaultResamples
	Level     float64 // 0: 0.95
	Seed      uint64
}

// DefaultResamples is the number of resamples of a Bootstrap.
const DefaultResamples = 2000

// MinPrompts is the number of prompts below which there are no intervals.
const MinPrompts = 8

// Pairs are a numerator and a denominator for each prompt. What is estimated
// is the ratio of their sums.
type Pairs struct{ Num, Den []float64 }

// Ratio estimates Σnum/Σden.
func (b Bootstrap) Ratio(p Pairs) (Interval, error) { return b.interval(ratio{}, p, p) }

// Difference estimates the ratio of q less that of p. Both have the same
// prompts, which are resampled together.
func (b Bootstrap) Difference(p, q Pairs) (Interval, error) { return b.interval(difference{}, p, q) }

// Quotient estimates the ratio of q divided by that of p, on a logarithmic
// scale. Sums must be positive.
func (b Bootstrap) Quotient(p, q Pairs) (Interval, error) {
	i, err := b.interval(logQuotient{}, p, q)
	return Interval{math.Exp(i.Value), math.Exp(i.Low), math.Exp(i.High)}, err
}

// row is one prompt: numerator and denominator of p, then of q.
type row [4]float64

// statistic is a function of the sums of rows, with the derivative that
// linearises it: influence is the change of value that one more row x makes,
// times the number of rows.
type statistic interface {
	value(sum row) float64
	influence(sum row, n float64, x *row) float64
}

type ratio struct{}

func (ratio) value(s row) float64 { return s[0] / s[1] }
func (ratio) influence(s row, n float64, x *row) float64 {
	return (x[0] - s[0]/s[1]*x[1]) * n / s[1]
}

type difference struct{}

func (difference) value(s row) float64 { return s[2]/s[3] - s[0]/s[1] }
func (difference) influence(s row, n float64, x *row) float64 {
	return (x[2]-s[2]/s[3]*x[3])*n/s[3] - (x[0]-s[0]/s[1]*x[1])*n/s[1]
}

type logQuotient struct{}

func (logQuotient) value(s row) float64 { return math.Log(s[2] / s[3] * s[1] / s[0]) }
func (logQuotient) influence(s row, n float64, x *row) float64 {
	return (x[2]/s[2] - x[3]/s[3] - x[0]/s[0] + x[1]/s[1]) * n
}

func (b Bootstrap) interval(f statistic, p, q Pairs) (Interval, error) {
	n := len(p.Num)
	if len(p.Den) != n || len(q.Num) != n || len(q.Den) != n {
		return Interval{}, fmt.Errorf("speculate: %d, %d, %d and %d values are no pairs of prompts", n, len(p.Den), len(q.Num), len(q.Den))
	}
	if n < MinPrompts {
		return Interval{}, fmt.Errorf("speculate: %d prompts are too few for a confidence interval (give at least %d)", n, MinPrompts)
	}
	rows := make([]row, n)
	var sum row
	for i := range rows {
		rows[i] = row{p.Num[i], p.Den[i], q.Num[i], q.Den[i]}
		add(&sum, &rows[i])
	}
	theta := f.value(sum)
	if !finite(theta) {
		return Interval{}, fmt.Errorf("speculate: the ratio %g/%g over all prompts is not a number (nothing was drafted or timed)", sum[0], sum[1])
	}
	se := standardError(f, sum, rows, nil)
	if se == 0 {
		return Interval{theta, theta, theta}, nil
	}
	resamples, level := b.Resamples, b.Level
	if resamples == 0 {
		resamples = DefaultResamples
	}
	if level == 0 {
		level = 0.95
	}
	rng := rand.New(rand.NewPCG(b.Seed, 0x5eed))
	t := make([]float64, 0, resamples)
	pick := make([]int, n)
	for range resamples {
		var s row
		for i := range pick {
			pick[i] = rng.IntN(n)
			add(&s, &rows[pick[i]])
		}
		// A resample without spread says nothing about the shape.
		if e := standardError(f, s, rows, pick); e > 0 && finite(e) {
			if x := (f.value(s) - theta) / e; finite(x) {
				t = append(t, x)
			}
		}
	}
	if len(t) < resamples/2 {
		return Interval{}, fmt.Errorf("speculate: %d of %d resamples have no spread: the prompts are too alike, or too few", resamples-len(t), resamples)
	}
	slices.Sort(t)
	at := func(q float64) float64 {
		i := int(math.Floor(q * float64(len(t)+1)))
		return t[min(max(i-1, 0), len(t)-1)]
	}
	tail := (1 - level) / 2
	return Interval{theta, theta - at(1-tail)*se, theta - at(tail)*se}, nil
}

func add(s, x *row) {
	for k := range s {
		s[k] += x[k]
	}
}

// standardError of f over the rows that pick lists, or all.
func standardError(f statistic, sum row, rows []row, pick []int) float64 {
	n := float64(len(rows))
	var total float64
	if pick == nil {
		for i := range rows {
			d := f.influence(sum, n, &rows[i])
			total += d * d
		}
	} else {
		for _, i := range pick {
			d := f.influence(sum, n, &rows[i])
			total += d * d
		}
	}
	return math.Sqrt(total / (n * (n - 1)))
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
