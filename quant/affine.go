package quant

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/bitpack"
	"github.com/smelt-go/smelt/internal/kernel"
)

// Rounding is a variant of MLX's affine rule.
type Rounding string

// The variants. Nearly all codes are equal: about 0.2 % differ at 4 bits.
const (
	// RoundCPU is mx.quantize on the CPU: ties to even.
	RoundCPU Rounding = "cpu"
	// RoundMetal is mx.quantize on a GPU: ties away from zero, and the largest
	// weight of a group is taken as at least 0, which wastes range where all
	// are negative. Divisions are taken to be IEEE.
	RoundMetal Rounding = "metal"
)

// Affine is MLX's affine format. Weights of a row are divided into groups; a
// weight is stored as a code q of Bits bits and decoded as scale·q + bias, with
// a scale and a bias a group in the matrix's own element type.
//
// Parts of a matrix [out, in] are weight, U32 [out, in·Bits/32]; scales and
// biases [out, in/Group]. Size: Bits + 32/Group bits a weight for 16-bit types.
//
// Method RTN is the rule of MLX (mlx/ops.cpp, affine_quantize), in float32 with
// n = 2^Bits − 1:
//
//	scale = max((max − min)/n, 1e-7), negative unless |min| > |max|
//	edge  = the one of min and max that is larger in magnitude
//	q0    = rint(edge/scale)
//	q0 ≠ 0: scale = edge/q0, bias = edge; else bias = 0
//	code  = clip(rint((w − bias)/scale), 0, n)
//
// Scale and bias are rounded to the stored type after the codes are found.
// Method Refit is described at refit.go, with an importance at refit_weighted.go,
// ErrorFeedback at feedback_affine.go.
type Affine struct {
	Bits     int // 2, 3, 4, 5, 6 or 8
	Group    int // 32, 64 or 128
	Rounding Rounding
}

// NewAffine checks bits, group and rounding; "" is RoundCPU.
func NewAffine(bits, group int, r Rounding) (Affine, error) {
	a := Affine{bits, group, r}
	if r == "" {
		a.Rounding = RoundCPU
	}
	switch {
	case bits < 2 || bits > 8 || bits == 7:
		return a, fmt.Errorf("quant: affine has no %d-bit codes (want 2, 3, 4, 5, 6 or 8)", bits)
	case group != 32 && group != 64 && group != 128:
		return a, fmt.Errorf("quant: affine has no groups of %d (want 32, 64 or 128)", group)
	case a.Rounding != RoundCPU && a.Rounding != RoundMetal:
		return a, fmt.Errorf("quant: rounding %q is unknown (want cpu or metal)", r)
	}
	return a, nil
}

func (a Affine) String() string { return fmt.Sprintf("affine %d-bit g%d", a.Bits, a.Group) }

// Parts lists weight, scales and biases.
func (a Affine) Parts(dt checkpoint.DType, shape []int) ([]Part, error) {
	if _, err := NewAffine(a.Bits, a.Group, a.Rounding); err != nil {
		return nil, err
	}
	if err := checkMatrix(dt, shape, a.Group); err != nil {
		return nil, err
	}
	cols := shape[len(shape)-1]
	groups := withLast(shape, cols/a.Group)
	return []Part{
		{"weight", checkpoint.U32, withLast(shape, cols*a.Bits/32)},
		{"scales", dt, groups},
		{"biases", dt, groups},
	}, nil
}

// maxGroup is the largest group of any format with groups.
const maxGroup = 128

// Encode codes rows.
func (a Affine) Encode(dst [][]byte, r Rows, m Method) error {
	return a.encodeMeasured(dst, r, m, new(Stats))
}

// encodeMeasured codes rows and adds up Error, and what error feedback knows more.
func (a Affine) encodeMeasured(dst [][]byte, r Rows, m Method, st *Stats) error {
	if m.Calibrated() {
		return a.encodeFeedback(dst, r, st)
	}
	if m == Refit && r.Importance != nil {
		a.encodeWeighted(dst, r, st)
		return nil
	}
	var codes [maxGroup]byte
	var f fitter
	n := a.Group * a.Bits / 8
	packed := dst[0]
	for g := 0; g*a.Group < len(r.W); g++ {
		w := r.W[g*a.Group:][:a.Group]
		scale, bias := a.minmax(w)
		a.code(codes[:a.Group], w, scale, bias)
		if m == Refit {
			scale, bias = f.refit(codes[:a.Group], w, a.Bits, r.DType, scale, bias)
		}
		putElement(dst[1], g, scale, r.DType)
		putElement(dst[2], g, bias, r.DType)
		bitpack.Pack(packed[g*n:], codes[:a.Group], a.Bits)
		st.Error += float64(kernel.AffineError(codes[:a.Group], w, round(scale, r.DType), round(bias, r.DType)))
	}
	return nil
}

// minmax gives scale and bias of a group before they are rounded.
func (a Affine) minmax(w []float32) (scale, bias float32) {
	lo, hi := kernel.AffineRange(w)
	if a.Rounding == RoundMetal {
		hi = max(hi, 0)
	}
	const eps = 1e-7
	n := float32(int(1)<<a.Bits - 1)
	scale = max((hi-lo)/n, eps)
	edge := hi
	if abs(lo) > abs(hi) {
		edge = lo
	} else {
		scale = -scale
	}
	if q := a.rint(edge / scale); q != 0 {
		return edge / q, edge
	}
	return scale, 0
}

func (a Affine) rint(x float32) float32 {
	if a.Rounding == RoundMetal {
		return float32(math.Round(float64(x)))
	}
	return float32(math.RoundToEven(float64(x)))
}

// code finds the codes of a group.
func (a Affine) code(dst []byte, w []float32, scale, bias float32) {
	top := int32(1)<<a.Bits - 1
	if a.Rounding == RoundMetal {
		for i, x := range w {
			dst[i] = byte(min(max(a.rint((x-bias)/scale), 0), float32(top)))
		}
		return
	}
	kernel.AffineCode(dst, w, scale, bias, int(top))
}

// Decode decodes rows as MLX does on the CPU: the product and the sum are both
// rounded to dt.
func (a Affine) Decode(dst []float32, src [][]byte, _ int, dt checkpoint.DType) {
	var codes [maxGroup]byte
	n := a.Group * a.Bits / 8
	for g := 0; g*a.Group < len(dst); g++ {
		bitpack.Unpack(codes[:a.Group], src[0][g*n:], a.Bits)
		scale, bias := element(src[1], g, dt), element(src[2], g, dt)
		var table [256]float32
		for q := range table[:1<<a.Bits] {
			table[q] = round(round(float32(q)*scale, dt)+bias, dt)
		}
		for i, q := range codes[:a.Group] {
			dst[g*a.Group+i] = table[q]
		}
	}
}

// DecodeFloat32 decodes rows without rounding to the stored type dt: what matrix
// products see that take codes apart in float32.
func (a Affine) DecodeFloat32(dst []float32, src [][]byte, dt checkpoint.DType) {
	var codes [maxGroup]byte
	n := a.Group * a.Bits / 8
	for g := 0; g*a.Group < len(dst); g++ {
		bitpack.Unpack(codes[:a.Group], src[0][g*n:], a.Bits)
		scale, bias := element(src[1], g, dt), element(src[2], g, dt)
		out := dst[g*a.Group:][:a.Group]
		for i, q := range codes[:a.Group] {
			out[i] = float32(float32(q)*scale) + bias
		}
	}
}

// minMax finds the range of finite weights.
func minMax(w []float32) (lo, hi float32) {
	lo, hi = w[0], w[0]
	lo1, hi1 := lo, hi
	for i := 0; i+1 < len(w); i += 2 {
		x, y := w[i], w[i+1]
		if x < lo {
			lo = x
		}
		if x > hi {
			hi = x
		}
		if y < lo1 {
			lo1 = y
		}
		if y > hi1 {
			hi1 = y
		}
	}
	return min(lo, lo1), max(hi, hi1)
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
