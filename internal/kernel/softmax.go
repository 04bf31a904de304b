package kernel

import "math"

// Softmax stores exp(x-max x) divided by its sum. A row with NaN, or of -Inf
// alone, becomes NaN.
func Softmax(dst, x []float32) {
	n := len(dst)
	if n == 0 {
		return
	}
	x = x[:n]
	c := Max(x)
	k := body(n)
	s := cur.expShift(ptr(dst), ptr(x), c, k)
	if k < n {
		p := pads.Get().(*[2 * lanes]float32)
		for i := range lanes {
			p[i] = float32(math.Inf(-1))
		}
		copy(p[:], x[k:])
		s += cur.expShift(&p[lanes], &p[0], c, lanes)
		copy(dst[k:], p[lanes:])
		pads.Put(p)
	}
	MulScalar(dst, dst, 1/s)
}

// RMSNorm stores x/√(mean x² + eps)·gamma; gamma nil means ones.
func RMSNorm(dst, x, gamma []float32, eps float32) {
	n := len(dst)
	x = x[:n]
	scale := float32(1 / math.Sqrt(float64(SumSquares(x))/float64(n)+float64(eps)))
	if gamma == nil {
		MulScalar(dst, x, scale)
		return
	}
	ScaleMul(dst, x, gamma, scale)
}
