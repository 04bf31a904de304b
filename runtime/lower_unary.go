package runtime

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/mil"
)

var unaryLowerers = map[string]lowerer{
	"acos":  unary(in64(math.Acos), nil),
	"asin":  unary(in64(math.Asin), nil),
	"atan":  unary(in64(math.Atan), nil),
	"atanh": unary(in64(math.Atanh), nil),
	"ceil":  unary(in64(math.Ceil), nil),
	"cos":   unary(in64(math.Cos), nil),
	"cosh":  unary(in64(math.Cosh), nil),
	"erf":   unary(in64(math.Erf), nil),
	"exp":   unary(in64(math.Exp), nil),
	"floor": unary(in64(math.Floor), nil),
	"round": unary(in64(math.RoundToEven), nil),
	"sin":   unary(in64(math.Sin), nil),
	"sinh":  unary(in64(math.Sinh), nil),
	"sqrt":  unary(in64(math.Sqrt), nil),
	"tan":   unary(in64(math.Tan), nil),
	"tanh":  unary(in64(math.Tanh), nil),

	"abs":         unary(in64(math.Abs), func(x int32) int32 { return max(x, -x) }),
	"exp2":        unary(in64(math.Exp2), func(x int32) int32 { return powInt(2, x) }),
	"sign":        unary(signFloat, signInt),
	"square":      unary(func(x float32) float32 { return x * x }, func(x int32) int32 { return x * x }),
	"logical_not": unary(nil, func(x int32) int32 { return truth(x == 0) }),

	"log":     withEpsilon(math.Log),
	"rsqrt":   withEpsilon(func(x float64) float64 { return 1 / math.Sqrt(x) }),
	"inverse": withEpsilon(func(x float64) float64 { return 1 / x }),

	"clip": withConsts([]string{"alpha", "beta"}, func(v []float64, x float64) float64 {
		return min(max(x, v[0]), v[1])
	}),
	"threshold": lowerThreshold,
	"cast":      lowerCast,
	"identity":  lowerIdentity,
}

// in64 evaluates f in float64 and rounds once.
func in64(f func(float64) float64) func(float32) float32 {
	return func(x float32) float32 { return float32(f(float64(x))) }
}

func signFloat(x float32) float32 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x // zero or NaN
}

func signInt(x int32) int32 { return truth(x > 0) - truth(x < 0) }

// unary lowers a function of each element of x.
func unary(ff func(float32) float32, fi func(int32) int32) lowerer {
	return func(l *lowering, op *mil.Op) (instr, error) {
		x, err := l.must(op, "x")
		if err != nil {
			return instr{}, err
		}
		return l.mapped(op, x, ff, fi), nil
	}
}

// mapped is the instruction that applies ff or fi to each element of slot x.
func (l *lowering) mapped(op *mil.Op, x int, ff func(float32) float32, fi func(int32) int32) instr {
	return l.like(op, x, false, func(f *frame, in, out *Tensor) error {
		if out.F != nil {
			mapInto(f, out.F, in.F, ff)
		} else {
			mapInto(f, out.I, in.I, fi)
		}
		return nil
	})
}

func mapInto[A, T any](f *frame, dst []T, src []A, fn func(A) T) {
	f.par(len(dst), 2048, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dst[i] = fn(src[i])
		}
	})
}

func withEpsilon(fn func(float64) float64) lowerer {
	return withConsts([]string{"epsilon"}, func(v []float64, x float64) float64 { return fn(x + v[0]) })
}

// withConsts lowers a function of x and constant scalars, in float64.
func withConsts(names []string, fn func(v []float64, x float64) float64) lowerer {
	return func(l *lowering, op *mil.Op) (instr, error) {
		x, err := l.must(op, "x")
		if err != nil {
			return instr{}, err
		}
		v, err := l.scalars(op, names...)
		if err != nil {
			return instr{}, err
		}
		return l.mapped(op, x, func(x float32) float32 { return float32(fn(v, float64(x))) }, nil), nil
	}
}

// scalars reads constant numbers, bound or default.
func (l *lowering) scalars(op *mil.Op, names ...string) ([]float64, error) {
	c, err := l.known(op, names...)
	if err != nil {
		return nil, err
	}
	v := make([]float64, len(names))
	for i, n := range names {
		k := c.Const(n)
		if k == nil {
			return nil, fmt.Errorf("input %s is missing", n)
		}
		t, err := FromConst(k)
		if err != nil {
			return nil, err
		}
		switch {
		case t.Len() != 1:
			return nil, fmt.Errorf("input %s is %v, want one number", n, t)
		case t.F != nil:
			v[i] = float64(t.F[0])
		default:
			v[i] = float64(t.I[0])
		}
	}
	return v, nil
}

func lowerThreshold(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	v, err := l.scalars(op, "alpha")
	if err != nil {
		return instr{}, err
	}
	return l.mapped(op, x,
		func(x float32) float32 { return max(x, float32(v[0])) },
		func(x int32) int32 { return max(x, int32(v[0])) }), nil
}

func lowerIdentity(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: x, run: func(f *frame) error {
		f.view(o, f.t[x], 0, f.t[x].Shape...)
		return nil
	}}, nil
}

func lowerCast(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	c, err := l.known(op, "dtype")
	if err != nil {
		return instr{}, err
	}
	d, err := mil.ParseDType(c.Str("dtype", ""))
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: !d.IsFloat(), alias: -1, run: func(f *frame) error {
		in := f.t[x]
		convert(f, f.out(o, d, in.Shape...), in)
		return nil
	}}, nil
}

// convert stores src into dst, which has the wanted type: floats truncate
// toward zero, integers wrap, a bool is whether the value differs from zero.
// Rounding to fp16 is left to the executor.
func convert(f *frame, dst, src *Tensor) {
	switch {
	case dst.F != nil && src.F != nil:
		copy(dst.F, src.F)
	case dst.F != nil:
		mapInto(f, dst.F, src.I, func(x int32) float32 { return float32(x) })
	case src.F != nil && dst.DType == mil.Bool:
		mapInto(f, dst.I, src.F, func(x float32) int32 { return truth(x != 0) })
	case src.F != nil:
		mapInto(f, dst.I, src.F, func(x float32) int32 { return narrow(truncate(x), dst.DType) })
	default:
		mapInto(f, dst.I, src.I, func(x int32) int32 { return narrow(x, dst.DType) })
	}
}

// truncate converts toward zero and saturates; NaN is 0.
func truncate(x float32) int32 {
	switch {
	case x != x:
		return 0
	case x >= math.MaxInt32:
		return math.MaxInt32
	case x <= math.MinInt32:
		return math.MinInt32
	}
	return int32(x)
}

// narrow wraps x to the width of integer type d.
func narrow(x int32, d mil.DType) int32 {
	switch d {
	case mil.Bool:
		return truth(x != 0)
	case mil.Int8:
		return int32(int8(x))
	case mil.UInt8:
		return int32(uint8(x))
	case mil.Int16:
		return int32(int16(x))
	case mil.UInt16:
		return int32(uint16(x))
	}
	return x
}
