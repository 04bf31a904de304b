package runtime

import (
	"math"

	"github.com/smelt-go/smelt/mil"
)

// Elementwise lowerers. float32 arithmetic is exact to one rounding where the
// operator is elementary; everything else is evaluated in float64.

var elementwiseLowerers = joinLowerers(map[string]lowerer{
	"add":       arith(addOf[float32], addOf[int32]),
	"sub":       arith(subOf[float32], subOf[int32]),
	"mul":       arith(mulOf[float32], mulOf[int32]),
	"real_div":  arith(func(a, b float32) float32 { return a / b }, truncDiv),
	"floor_div": arith(floorDivFloat, floorDivInt),
	"mod":       arith(modFloat, modInt),
	"pow":       arith(func(a, b float32) float32 { return float32(math.Pow(float64(a), float64(b))) }, powInt),
	"maximum":   arith(maxFloat, maxOf[int32]),
	"minimum":   arith(minFloat, minOf[int32]),

	"equal":         compare(equalTo[float32], equalTo[int32]),
	"not_equal":     compare(notEqual[float32], notEqual[int32]),
	"greater":       compare(greater[float32], greater[int32]),
	"greater_equal": compare(greaterEqual[float32], greaterEqual[int32]),
	"less":          compare(less[float32], less[int32]),
	"less_equal":    compare(lessEqual[float32], lessEqual[int32]),
	"logical_and":   compare(nil, func(a, b int32) bool { return a != 0 && b != 0 }),
	"logical_or":    compare(nil, func(a, b int32) bool { return a != 0 || b != 0 }),
	"logical_xor":   compare(nil, func(a, b int32) bool { return (a != 0) != (b != 0) }),
}, unaryLowerers)

type number interface{ float32 | float64 | int32 }

func addOf[T number](a, b T) T           { return a + b }
func subOf[T number](a, b T) T           { return a - b }
func mulOf[T number](a, b T) T           { return a * b }
func maxOf[T number](a, b T) T           { return max(a, b) }
func minOf[T number](a, b T) T           { return min(a, b) }
func equalTo[T number](a, b T) bool      { return a == b }
func notEqual[T number](a, b T) bool     { return a != b }
func greater[T number](a, b T) bool      { return a > b }
func greaterEqual[T number](a, b T) bool { return a >= b }
func less[T number](a, b T) bool         { return a < b }
func lessEqual[T number](a, b T) bool    { return a <= b }

// NaN in either operand gives NaN, as the built-in max and min do.
func maxFloat(a, b float32) float32 { return max(a, b) }
func minFloat(a, b float32) float32 { return min(a, b) }

// Integer division by zero has no defined result; it is 0 here.

func truncDiv(a, b int32) int32 {
	if b == 0 {
		return 0
	}
	return a / b
}

func floorDivInt(a, b int32) int32 {
	if b == 0 {
		return 0
	}
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func modInt(a, b int32) int32 {
	if b == 0 {
		return 0
	}
	r := a % b
	if r != 0 && (r < 0) != (b < 0) {
		r += b
	}
	return r
}

// powInt wraps; a negative exponent truncates toward zero.
func powInt(a, n int32) int32 {
	if n < 0 {
		switch {
		case a == 1, a == -1 && n%2 == 0:
			return 1
		case a == -1:
			return -1
		}
		return 0
	}
	r := int32(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			r *= a
		}
		a *= a
	}
	return r
}

// modFloat has the sign of the divisor.
func modFloat(a, b float32) float32 {
	r := math.Mod(float64(a), float64(b))
	switch {
	case r != 0 && (b < 0) != (r < 0):
		r += float64(b)
	case r == 0:
		r = math.Copysign(0, float64(b))
	}
	return float32(r)
}

// floorDivFloat rounds the exact quotient down: the remainder is taken off
// before the division, so that 1 // 0.1 is 9.
func floorDivFloat(a, b float32) float32 {
	if b == 0 {
		return a / b
	}
	x, y := float64(a), float64(b)
	r := math.Mod(x, y)
	q := (x - r) / y
	if r != 0 && (y < 0) != (r < 0) {
		q--
	}
	if q == 0 {
		return float32(math.Copysign(0, x/y))
	}
	return float32(math.Round(q))
}

// arith lowers a broadcasting binary op.
func arith(ff func(a, b float32) float32, fi func(a, b int32) int32) lowerer {
	return pairwise(func(f *frame, o int, a, b *Tensor, shape []int) {
		t := f.out(o, a.DType, shape...)
		if t.F != nil {
			broadcast2(f, t.F, a.F, b.F, shape, a.Shape, b.Shape, ff)
		} else {
			broadcast2(f, t.I, a.I, b.I, shape, a.Shape, b.Shape, fi)
		}
	}, false)
}

// compare lowers a broadcasting predicate.
func compare(ff func(a, b float32) bool, fi func(a, b int32) bool) lowerer {
	return pairwise(func(f *frame, o int, a, b *Tensor, shape []int) {
		t := f.out(o, mil.Bool, shape...)
		if a.DType.IsFloat() {
			broadcast2(f, t.I, a.F, b.F, shape, a.Shape, b.Shape, func(x, y float32) int32 { return truth(ff(x, y)) })
		} else {
			broadcast2(f, t.I, a.I, b.I, shape, a.Shape, b.Shape, func(x, y int32) int32 { return truth(fi(x, y)) })
		}
	}, true)
}

func truth(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

func pairwise(body func(f *frame, o int, a, b *Tensor, shape []int), exact bool) lowerer {
	return func(l *lowering, op *mil.Op) (instr, error) {
		in, err := l.operands(op, "x", "y")
		if err != nil {
			return instr{}, err
		}
		o := l.result(op, 0)
		return instr{alias: -1, exact: exact, run: func(f *frame) error {
			a, b := f.t[in[0]], f.t[in[1]]
			shape, err := mil.Broadcast(a.Shape, b.Shape)
			if err == nil {
				body(f, o, a, b, shape)
			}
			return err
		}}, nil
	}
}

// broadcast2 applies op over operands broadcast to shape.
func broadcast2[A, B, T any](f *frame, dst []T, a []A, b []B, shape, as, bs []int, op func(A, B) T) {
	const grain = 4096
	switch {
	case len(a) == len(dst) && len(b) == len(dst):
		f.par(len(dst), grain, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				dst[i] = op(a[i], b[i])
			}
		})
	case len(b) == 1 && len(a) == len(dst):
		y := b[0]
		f.par(len(dst), grain, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				dst[i] = op(a[i], y)
			}
		})
	case len(dst) > 0:
		n := len(shape) - 1
		sa, sb := broadcastStrides(as, shape), broadcastStrides(bs, shape)
		w, ia, ib := shape[n], sa[n], sb[n]
		f.par(len(dst)/w, max(1, grain/w), func(lo, hi int) {
			for r := lo; r < hi; r++ {
				pa, pb := offsetOf(r, shape[:n], sa), offsetOf(r, shape[:n], sb)
				row := dst[r*w : r*w+w]
				for i := range row {
					row[i] = op(a[pa], b[pb])
					pa += ia
					pb += ib
				}
			}
		})
	}
}

// offsetOf is the storage offset of the row-major element i of shape under
// the given strides.
func offsetOf(i int, shape, strides []int) int {
	off := 0
	for k := len(shape) - 1; k >= 0; k-- {
		off += i % shape[k] * strides[k]
		i /= shape[k]
	}
	return off
}
