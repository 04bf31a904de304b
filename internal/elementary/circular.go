package elementary

import "math"

// π/2 in three parts. The first two have 20 trailing zero bits, so that their
// products with quadrant numbers below 2^20 are exact.
const (
	halfPi1 = 0x1.921fb544p+0
	halfPi2 = 0x1.0b4611a6p-34
	halfPi3 = 0x1.3198a2e037073p-69
)

// Sin is the sine of x radians, for |x| up to 10^6.
func Sin(x float64) float64 { return circular(x, 0) }

// Cos is the cosine of x radians, for |x| up to 10^6.
func Cos(x float64) float64 { return circular(x, 1) }

// circular is sin(x + shift·π/2).
func circular(x float64, shift int) float64 {
	if x-x != 0 {
		return math.NaN()
	}
	n := math.Floor(float64(x*(2/math.Pi)) + 0.5)
	r := ((x - float64(n*halfPi1)) - float64(n*halfPi2)) - float64(n*halfPi3)
	s := float64(r * r)
	var y float64
	quadrant := (int64(n) + int64(shift)) & 3
	if quadrant&1 == 0 {
		p := factorial[17]
		for i := 15; i >= 3; i -= 2 {
			p = factorial[i] - float64(p*s)
		}
		y = r - float64(float64(p*s)*r)
	} else {
		p := factorial[16]
		for i := 14; i >= 4; i -= 2 {
			p = factorial[i] - float64(p*s)
		}
		half := float64(0.5 * s)
		y = 1 - half
		y += (1 - y) - half + float64(float64(p*s)*s)
	}
	if quadrant&2 != 0 {
		return -y
	}
	return y
}
