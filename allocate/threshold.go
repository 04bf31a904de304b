package allocate

import (
	"fmt"
	"math"
)

// Binary is a tensor with a choice of two formats, as mlx-lm's dynamic
// quantization has it.
type Binary struct {
	Name        string
	Sensitivity float64 // what the high format gains, for a million weights
	Low, High   int64   // bytes
}

// Threshold is mlx-lm's rule (mlx_lm/quant/dynamic_quant.py): every tensor whose
// sensitivity is above one threshold gets the high format. The threshold is
// found by bisection, to a thousandth of the range of sensitivities, so that
// bits of all tensors, those of fixed bytes included, are about target a weight;
// it is the middle of the last interval, so the target may be exceeded.
func Threshold(items []Binary, fixed, weights int64, target float64) (high []bool, threshold float64, err error) {
	if len(items) == 0 || weights <= 0 {
		return nil, 0, fmt.Errorf("allocate: there is nothing to decide about")
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, it := range items {
		if math.IsNaN(it.Sensitivity) || math.IsInf(it.Sensitivity, 0) {
			return nil, 0, fmt.Errorf("allocate: %s: sensitivity is %v", it.Name, it.Sensitivity)
		}
		lo, hi = min(lo, it.Sensitivity), max(hi, it.Sensitivity)
	}
	high = make([]bool, len(items))
	tolerance := 1e-3 * (hi - lo)
	for hi-lo > tolerance {
		mid := (hi + lo) / 2
		bytes := fixed
		for _, it := range items {
			if it.Sensitivity > mid {
				bytes += it.High
			} else {
				bytes += it.Low
			}
		}
		if float64(bytes)*8/float64(weights) > target {
			lo = mid
		} else {
			hi = mid
		}
	}
	threshold = (hi + lo) / 2
	for i, it := range items {
		high[i] = it.Sensitivity > threshold
	}
	return high, threshold, nil
}
