package elementary

import "math"

// ln 2 in two parts: the first has 21 trailing zero bits, so that its product
// with a small integer is exact.
const (
	ln2Hi = 0x1.62e42feep-1
	ln2Lo = 0x1.a39ef35793c76p-33
	log2e = 1 / math.Ln2
)

// factorial holds 1/n!.
var factorial = func() (f [18]float64) {
	f[0] = 1
	n := 1.0
	for i := 1; i < len(f); i++ {
		n *= float64(i) // exact: 17! has 49 bits
		f[i] = 1 / n
	}
	return f
}()

// Exp is e^x: 2^k·e^r with |r| ≤ ln 2 / 2, e^r by its Taylor series.
func Exp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 709.79:
		return math.Inf(1)
	case x < -745.2:
		return 0
	}
	k := math.Floor(float64(x*log2e) + 0.5)
	r := (x - float64(k*ln2Hi)) - float64(k*ln2Lo)
	// Even and odd terms apart: two short chains instead of a long one.
	s := float64(r * r)
	even, odd := factorial[12], factorial[13]
	for i := 10; i >= 2; i -= 2 {
		even = float64(even*s) + factorial[i]
		odd = float64(odd*s) + factorial[i+1]
	}
	// e^r − 1 = r + (odd·r³ + even·r²), the largest term last.
	tail := float64(float64(odd*s)*r) + float64(even*s)
	y := 1 + (r + tail)
	if k >= -1021 && k <= 1023 {
		return y * math.Float64frombits(uint64(int64(k)+1023)<<52)
	}
	return math.Ldexp(y, int(k))
}

// Log is the natural logarithm of a positive x: x = 2^k·m, ln m by the series
// of 2·atanh((m−1)/(m+1)).
func Log(x float64) float64 {
	switch {
	case x != x || math.IsInf(x, 1):
		return x
	case x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	f := m - 1
	z := f / (m + 1)
	s := float64(z * z)
	sum := 0.0
	for n := 23; n >= 3; n -= 2 {
		sum = float64(sum*s) + 1/float64(n)
	}
	// 2·atanh z = f − z·(f − 2·s·sum), since 2z = f − z·f.
	k := float64(e)
	return float64(k*ln2Hi) + ((f - float64(z*(f-float64(2*float64(s*sum))))) + float64(k*ln2Lo))
}

// Pow is x^y of a positive x. Its relative error grows with |y·ln x|, to 1e-14
// at 60.
func Pow(x, y float64) float64 {
	if y == 0 {
		return 1
	}
	return Exp(float64(y * Log(x)))
}

// Tanh is the hyperbolic tangent.
func Tanh(x float64) float64 {
	a := math.Abs(x)
	var y float64
	switch {
	case a < 0.03:
		s := float64(a * a)
		p := 62.0 / 2835
		p = float64(p*s) - 17.0/315
		p = float64(p*s) + 2.0/15
		p = float64(p*s) - 1.0/3
		y = a + float64(float64(p*s)*a)
	case a < 20:
		y = 1 - 2/(Exp(2*a)+1)
	case a != a:
		return x
	default:
		y = 1
	}
	return math.Copysign(y, x)
}

// Erf is the error function: 2/√π·e^(−x²)·Σ 2ⁿx²ⁿ⁺¹/(2n+1)!!, in which all terms
// have one sign.
func Erf(x float64) float64 {
	a := math.Abs(x)
	switch {
	case a != a:
		return x
	case a > 6:
		return math.Copysign(1, x)
	}
	s := float64(a * a)
	term, sum := a, a
	for n := 1; term > float64(sum*0x1p-54); n++ {
		term = float64(term*(2*s)) / float64(2*n+1)
		sum += term
	}
	return math.Copysign(float64(float64(sum*Exp(-s))*(2/math.Sqrt(math.Pi))), x)
}
