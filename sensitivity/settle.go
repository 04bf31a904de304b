package sensitivity

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/quant"
)

// error is what damage of a candidate is taken to be proportional to.
func (t *Tensor) error(c *Measurement) float64 {
	if c.OutputError != nil && !slices.ContainsFunc(t.Candidates, func(c Measurement) bool { return c.OutputError == nil }) {
		return *c.OutputError
	}
	return c.WeightError
}

// slope is what damage there is for a unit of error, by least squares weighted with
// standard errors, and its own standard error, as figures of measured candidates
// have it. Around a base that holds the tensor in the format own, figures are
// differences from its damage. A tensor without figures has no slope.
func (t *Tensor) slope(base float64, own *Measurement, measured func(c *Measurement) bool) (slope, se float64, ok bool) {
	var e0 float64
	if own != nil {
		e0 = t.error(own)
	}
	var xx, xy float64
	for j := range t.Candidates {
		c := &t.Candidates[j]
		if own != nil && c.Format == own.Format || !measured(c) {
			continue
		}
		x, y := t.error(c)-e0, c.Damage-base
		// The proportion holds to some percent: figures that are more exact weigh
		// no more for it.
		v := c.StandardError*c.StandardError + 0.01*y*y + 1e-24
		xx += x * x / v
		xy += x * y / v
	}
	if xx == 0 {
		return 0, 0, false
	}
	return xy / xx, 1 / math.Sqrt(xx), true
}

// scale works out the damage of candidates that were not measured.
func (t *Tensor) scale(base float64, own quant.Format, around bool, measured func(f quant.Format) bool) error {
	var o *Measurement
	if around {
		if o = t.candidate(own); o == nil {
			return fmt.Errorf("sensitivity: %s: the base's format, %s, is not among the candidates", t.Path, Name(own))
		}
	}
	slope, se, ok := t.slope(base, o, func(c *Measurement) bool { return measured(c.Format) })
	if !ok {
		return fmt.Errorf("sensitivity: %s: no candidate was measured that others could be scaled from", t.Path)
	}
	var e0 float64
	if o != nil {
		e0 = t.error(o)
	}
	for j := range t.Candidates {
		c := &t.Candidates[j]
		if measured(c.Format) || around && c.Format == own {
			continue
		}
		x := t.error(c) - e0
		c.Damage, c.StandardError, c.Estimated = max(0, base+slope*x), math.Abs(se*x), true
	}
	return nil
}

func (t *Tensor) candidate(f quant.Format) *Measurement {
	j := slices.IndexFunc(t.Candidates, func(c Measurement) bool { return c.Format == f })
	if j < 0 {
		return nil
	}
	return &t.Candidates[j]
}

// Settle makes a map that adds up of one that was measured around a recipe, without
// a first round. A single change from the recipe moves the whole by so little that
// a figure is half noise; but all changes of a tensor tell of one number, its
// damage for a unit of error. That is found from all its figures together and
// drawn towards what tensors of its class have, the more the less certain it is.
// Damages are then that number times a candidate's error, scaled so that the
// recipe's own add up to what was measured for the whole. The second result is the
// sum before scaling, over the measured damage: 1 if tensors leave each other
// alone.
func Settle(around *Map, r *quant.Recipe) (*Map, float64, error) {
	if around.Base == "" {
		return nil, 0, fmt.Errorf("sensitivity: the map was not measured around a recipe")
	}
	formats, err := around.formats(r)
	if err != nil {
		return nil, 0, err
	}
	out := *around
	out.Tensors = slices.Clone(around.Tensors)
	type found struct{ slope, se float64 }
	slopes := make([]found, len(out.Tensors))
	classes := map[quant.Class][]int{}
	for i := range out.Tensors {
		t := &out.Tensors[i]
		t.Candidates = slices.Clone(t.Candidates)
		var own *Measurement
		base := around.BaseDamage
		if f, ok := formats[t.Path]; ok {
			if own = t.candidate(f); own == nil {
				return nil, 0, fmt.Errorf("sensitivity: %s: the base's format, %s, is not among the candidates", t.Path, Name(f))
			}
		}
		s, se, ok := t.slope(base, own, func(c *Measurement) bool { return !c.Estimated })
		if !ok {
			return nil, 0, fmt.Errorf("sensitivity: %s: no candidate beside the base's own was measured", t.Path)
		}
		slopes[i] = found{s, se}
		classes[t.Class] = append(classes[t.Class], i)
	}
	for _, members := range classes {
		// Mean and variance of true slopes, by moments.
		var mean, spread float64
		for _, i := range members {
			mean += slopes[i].slope / float64(len(members))
		}
		for _, i := range members {
			d := slopes[i].slope - mean
			spread += (d*d - slopes[i].se*slopes[i].se) / float64(max(1, len(members)-1))
		}
		spread = max(spread, 0)
		for _, i := range members {
			if v := slopes[i].se * slopes[i].se; len(members) > 2 && v > 0 {
				slopes[i].slope = (slopes[i].slope*spread + mean*v) / (spread + v)
				slopes[i].se = math.Sqrt(spread * v / (spread + v))
			}
			slopes[i].slope = positive(slopes[i].slope, slopes[i].se)
		}
	}
	var sum float64
	for i := range out.Tensors {
		t := &out.Tensors[i]
		if f, ok := formats[t.Path]; ok {
			sum += slopes[i].slope * t.error(t.candidate(f))
		}
	}
	if !(sum > 0) || !(around.BaseDamage > 0) {
		return nil, 0, fmt.Errorf("sensitivity: the recipe does no damage that could be divided among tensors")
	}
	scale := around.BaseDamage / sum
	for i := range out.Tensors {
		t := &out.Tensors[i]
		for j := range t.Candidates {
			c := &t.Candidates[j]
			if m := c.Damage; !c.Estimated {
				c.Measured = &m
			}
			c.Damage = scale * slopes[i].slope * t.error(c)
			c.StandardError = scale * slopes[i].se * t.error(c)
		}
	}
	return &out, 1 / scale, out.Check()
}

// positive is the mean of a normal distribution of which it is known that it is of
// something positive: damage that does not stand out of the noise is small, not
// nothing.
func positive(mean, sd float64) float64 {
	if sd == 0 {
		return max(mean, 0)
	}
	a := mean / sd
	if a < -8 {
		return sd / -a // its limit
	}
	return mean + sd*math.Exp(-a*a/2)/math.Sqrt(2*math.Pi)/(0.5*math.Erfc(-a/math.Sqrt2))
}
