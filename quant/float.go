package quant

import (
	"fmt"
	"math"
	"sync"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/bitpack"
	"github.com/smelt-go/smelt/internal/half"
)

// Float is one of MLX's formats of small floating point codes with a scale a
// group and no bias. A weight is stored as code q and decoded as value(q)·scale.
//
//	mode   group  codes       scale            bits a weight
//	mxfp4     32  E2M1        E8M0             4.25
//	mxfp8     32  E4M3        E8M0             8.25
//	nvfp4     16  E2M1        E4M3             4.5
//
// E8M0 is the power of two 2^(byte−127); E2M1 has the magnitudes 0, .5, 1, 1.5,
// 2, 3, 4, 6. Parts of a matrix [out, in] are weight, U32 [out, in·bits/32], and
// scales, U8 [out, in/group].
//
// Method RTN is the rule of MLX (mlx/ops.cpp, fp_quantize), which computes in the
// matrix's own type: s = max|w|/M, M = 6 or 448, then E4M3(s) or the smallest
// power of two that is not below s, and the codes nearest to w/scale. Of two
// codes equally near, E2M1 takes the first of 0, .5, …, 6, −0, −.5, …, −6.
//
// The other methods choose among stored scales near that one, which may clip the
// largest weights.
type Float struct {
	Mode string
	float
}

type float struct {
	group, bits int
	top         float32 // largest code
	e4m3        bool    // type of scale
}

var floats = map[string]float{
	"mxfp4": {32, 4, 6, false},
	"mxfp8": {32, 8, 448, false},
	"nvfp4": {16, 4, 6, true},
}

// NewFloat returns the format called mode: mxfp4, mxfp8 or nvfp4.
func NewFloat(mode string) (Float, error) {
	f, ok := floats[mode]
	if !ok {
		return Float{}, fmt.Errorf("quant: there is no format %q (want mxfp4, mxfp8 or nvfp4)", mode)
	}
	return Float{mode, f}, nil
}

// Group is the number of weights that share a scale.
func (f Float) Group() int { return f.group }

// Bits is the width of a code.
func (f Float) Bits() int { return f.bits }

func (f Float) String() string { return fmt.Sprintf("%s g%d", f.Mode, f.group) }

// Parts lists weight and scales.
func (f Float) Parts(dt checkpoint.DType, shape []int) ([]Part, error) {
	if err := checkMatrix(dt, shape, f.group); err != nil {
		return nil, err
	}
	cols := shape[len(shape)-1]
	if cols*f.bits%32 != 0 {
		return nil, fmt.Errorf("the last dimension is %d, whose %d-bit codes do not fill 32-bit words", cols, f.bits)
	}
	return []Part{
		{"weight", checkpoint.U32, withLast(shape, cols*f.bits/32)},
		{"scales", checkpoint.U8, withLast(shape, cols/f.group)},
	}, nil
}

// Encode codes rows.
func (f Float) Encode(dst [][]byte, r Rows, m Method) error {
	return f.encodeMeasured(dst, r, m, new(Stats))
}

// rtn codes rows by the rule of MLX.
func (f Float) rtn(dst [][]byte, r Rows) {
	var codes [maxGroup]byte
	code := f.coder(r.DType)
	n := f.group * f.bits / 8
	for g := 0; g*f.group < len(r.W); g++ {
		w := r.W[g*f.group:][:f.group]
		var peak float32
		for _, x := range w {
			peak = max(peak, abs(x))
		}
		s := round(peak/f.top, r.DType)
		if f.e4m3 {
			dst[1][g] = toE4M3(s)
		} else {
			dst[1][g] = toE8M0(s)
		}
		// The divisor is not the stored scale where that has wrapped around.
		s = f.divisor(s, r.DType)
		for i, x := range w {
			codes[i] = code(round(x/s, r.DType))
		}
		bitpack.Pack(dst[0][g*n:], codes[:f.group], f.bits)
	}
}

// divisor is the scale by which weights are divided, from max|w|/top.
func (f Float) divisor(s float32, dt checkpoint.DType) float32 {
	switch {
	case f.e4m3:
		return fromE4M3(toE4M3(s))
	case s == 0:
		return 1
	}
	return round(float32(math.Ldexp(1, ceilLog2(s))), dt)
}

// Decode decodes rows; products are rounded to dt.
func (f Float) Decode(dst []float32, src [][]byte, _ int, dt checkpoint.DType) {
	var codes [maxGroup]byte
	n := f.group * f.bits / 8
	for g := 0; g*f.group < len(dst); g++ {
		bitpack.Unpack(codes[:f.group], src[0][g*n:], f.bits)
		var s float32
		if f.e4m3 {
			s = fromE4M3(src[1][g])
		} else {
			s = round(float32(math.Ldexp(1, int(src[1][g])-127)), dt)
		}
		for i, q := range codes[:f.group] {
			v := fromE4M3(q)
			if f.bits == 4 {
				v = e2m1[q]
			}
			dst[g*f.group+i] = round(v*s, dt)
		}
	}
}

// e2m1 are the values of codes of four bits.
var e2m1 = [16]float32{0, .5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -.5, -1, -1.5, -2, -3, -4, -6}

// nearestE2M1 is the first code whose distance, as an element of dt, is least.
func nearestE2M1(x float32, dt checkpoint.DType) byte {
	best, at := abs(round(x-e2m1[0], dt)), 0
	for i := 1; i < len(e2m1); i++ {
		if d := abs(round(x-e2m1[i], dt)); d < best {
			best, at = d, i
		}
	}
	return byte(at)
}

// ceilLog2 is the least e with 2^e ≥ x, for finite x > 0.
func ceilLog2(x float32) int {
	frac, e := math.Frexp(float64(x))
	if frac == 0.5 {
		return e - 1
	}
	return e
}

func toE8M0(s float32) byte {
	if s == 0 {
		return 127
	}
	return byte(ceilLog2(s) + 127)
}

// toE4M3 rounds to nearest even and saturates at 448.
func toE4M3(x float32) byte {
	u := math.Float32bits(x)
	sign := byte(u >> 31 << 7)
	u &^= 1 << 31
	switch {
	case u >= 543<<21: // 448 and its half step
		return sign | 0x7e
	case u < 121<<23: // below the least normal, 2⁻⁶: add at the right exponent
		const at = 141 << 23
		return sign | byte(math.Float32bits(math.Float32frombits(u)+math.Float32frombits(at))-at)
	}
	odd := u >> 20 & 1
	return sign | byte((u-(120<<23)+0x7ffff+odd)>>20)
}

// fromE4M3 is exact.
func fromE4M3(b byte) float32 {
	e, m := int(b>>3&15), float64(b&7)
	v := math.Ldexp(1+float64(m/8), e-7)
	switch {
	case e == 0:
		v = math.Ldexp(m/8, -6)
	case b&0x7f == 0x7f:
		v = math.NaN()
	}
	if b>>7 == 1 {
		v = -v
	}
	return float32(v)
}

// coder returns the function from a scaled weight of type dt to its code.
// For the 16-bit types that is a table.
func (f Float) coder(dt checkpoint.DType) func(float32) byte {
	direct := toE4M3
	if f.bits == 4 {
		direct = func(x float32) byte { return nearestE2M1(x, dt) }
	}
	switch {
	case dt == checkpoint.BF16 && f.bits == 4:
		t := bf16Codes()
		return func(x float32) byte { return t[half.ToBF16(x)] }
	case dt == checkpoint.F16 && f.bits == 4:
		t := f16Codes()
		return func(x float32) byte { return t[half.FromF32(x)] }
	}
	return direct
}

var bf16Codes = sync.OnceValue(func() *[1 << 16]byte {
	t := new([1 << 16]byte)
	for i := range t {
		t[i] = nearestE2M1(half.FromBF16(uint16(i)), checkpoint.BF16)
	}
	return t
})

var f16Codes = sync.OnceValue(func() *[1 << 16]byte {
	t := new([1 << 16]byte)
	for i := range t {
		t[i] = nearestE2M1(half.ToF32(uint16(i)), checkpoint.F16)
	}
	return t
})
