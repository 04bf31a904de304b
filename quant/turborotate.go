package quant

import "math"

// Signs are n signs, 1 or −1, that a seed makes: bit j mod 64 of SplitMix64's
// output number j div 64 + 1 says that sign j is negative.
func Signs(seed uint64, n int) []float32 {
	out := make([]float32, n)
	var word uint64
	for j := range out {
		if j%64 == 0 {
			seed += 0x9e3779b97f4a7c15
			word = (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
			word = (word ^ word>>27) * 0x94d049bb133111eb
			word ^= word >> 31
		}
		out[j] = 1
		if word>>(j%64)&1 == 1 {
			out[j] = -1
		}
	}
	return out
}

func flip(x, signs []float32) {
	for i, s := range signs[:len(x)] {
		x[i] *= s
	}
}

// Hadamard multiplies every run of n elements of x, a power of two that divides
// its length, by the Hadamard matrix of order n over √n, which is symmetric and
// orthogonal. Sums are float32, in an order that n alone decides.
func Hadamard(x []float32, n int) {
	scale := float32(1 / math.Sqrt(float64(n)))
	for at := 0; at+n <= len(x); at += n {
		v := x[at : at+n]
		step := 1
		if n >= 4 {
			for i := 0; i+4 <= n; i += 4 {
				a, b, c, d := v[i], v[i+1], v[i+2], v[i+3]
				a, b, c, d = a+b, a-b, c+d, c-d
				v[i], v[i+1], v[i+2], v[i+3] = a+c, b+d, a-c, b-d
			}
			step = 4
		}
		for ; step < n; step *= 2 {
			for i := 0; i < n; i += 2 * step {
				lo, hi := v[i:i+step], v[i+step:i+2*step]
				for j, a := range lo {
					b := hi[j]
					lo[j], hi[j] = a+b, a-b
				}
			}
		}
		for i := range v {
			v[i] *= scale
		}
	}
}
