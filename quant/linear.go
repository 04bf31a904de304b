package quant

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/internal/half"
)

// Granularity says what shares a scale in a Linear format.
type Granularity string

// The granularities of a matrix [out, in].
const (
	PerTensor  Granularity = "tensor"
	PerChannel Granularity = "channel" // a row
	PerBlock   Granularity = "block"   // Block columns of a row
)

// Linear is Core ML's integer format, constexpr_blockwise_shift_scale: codes q
// of 4 or 8 bits, decoded as scale·(q − offset).
//
// The codes are those of coremltools' linear_quantize_weights, which computes in
// the type of the weights; here that is fp16. With the range of codes [lo, hi],
// which symmetric forms narrow by one value so that it is centred:
//
//	symmetric:   scale = 2·max|w| / (hi − lo); offset = 0, or (2^b − 2)/2 if unsigned
//	asymmetric:  min and max are widened to contain 0, scale = (max − min)/(hi − lo),
//	             offset = clip(rint((lo·max − hi·min)/(max − min)), lo, hi)
//	code = clip(rint(w/scale) + offset, lo, hi)
//
// Symmetric signed forms store no offset.
type Linear struct {
	Bits        int // 4 or 8
	Granularity Granularity
	Block       int // columns, with PerBlock
	Unsigned    bool
	Symmetric   bool
}

func (l Linear) check() error {
	switch {
	case l.Bits != 4 && l.Bits != 8:
		return fmt.Errorf("quant: linear has no %d-bit codes (want 4 or 8)", l.Bits)
	case l.Granularity != PerTensor && l.Granularity != PerChannel && l.Granularity != PerBlock:
		return fmt.Errorf("quant: granularity %q is unknown (want tensor, channel or block)", l.Granularity)
	case l.Granularity == PerBlock && l.Block < 1, l.Granularity != PerBlock && l.Block != 0:
		return fmt.Errorf("quant: group_size is %d with granularity %s (blocks need one, others have none)", l.Block, l.Granularity)
	}
	return nil
}

func (l Linear) String() string {
	name := "int"
	if l.Unsigned {
		name = "uint"
	}
	if l.Granularity == PerBlock {
		return fmt.Sprintf("%s%d block %d", name, l.Bits, l.Block)
	}
	return fmt.Sprintf("%s%d per %s", name, l.Bits, l.Granularity)
}

// HasOffset reports whether offsets are stored.
func (l Linear) HasOffset() bool { return l.Unsigned || !l.Symmetric }

// limits is the range of codes.
func (l Linear) limits() (lo, hi int) {
	n := 1 << l.Bits
	switch {
	case l.Unsigned && l.Symmetric:
		return 0, n - 2
	case l.Unsigned:
		return 0, n - 1
	case l.Symmetric:
		return -(n/2 - 1), n/2 - 1
	}
	return -n / 2, n/2 - 1
}

// Integers are the codes of a matrix [rows, cols] with Groups scales a row, or
// with one scale for all.
type Integers struct {
	Codes  []int8   // [rows, cols], two's complement; unsigned codes wrap
	Scale  []uint16 // fp16, [scale rows, groups]
	Offset []int8   // as Scale; nil if there is none
}

// Quantize codes a matrix of fp16 values, given in float32.
func (l Linear) Quantize(w []float32, rows, cols int) (Integers, error) {
	if err := l.check(); err != nil {
		return Integers{}, err
	}
	run := cols
	switch l.Granularity {
	case PerTensor:
		run = rows * cols
	case PerBlock:
		if run = l.Block; cols%run != 0 {
			return Integers{}, fmt.Errorf("quant: the last dimension is %d, which blocks of %d do not divide (choose another block, or keep the tensor)", cols, run)
		}
	}
	out := Integers{Codes: make([]int8, len(w)), Scale: make([]uint16, len(w)/run)}
	if l.HasOffset() {
		out.Offset = make([]int8, len(out.Scale))
	}
	lo, hi := l.limits()
	for g := range out.Scale {
		x := w[g*run:][:run]
		scale, offset := l.group(x, lo, hi)
		out.Scale[g] = half.FromF32(scale)
		if out.Offset != nil {
			out.Offset[g] = int8(offset)
		}
		l.code(out.Codes[g*run:][:run], x, scale, offset, lo, hi)
	}
	return out, nil
}

// h rounds to fp16.
func h(x float32) float32 { return half.ToF32(half.FromF32(x)) }

// group finds scale, an fp16 value, and offset.
func (l Linear) group(w []float32, lo, hi int) (scale float32, offset int) {
	a, b := minMax(w)
	steps := float32(hi - lo)
	if l.Symmetric {
		r := max(abs(a), abs(b))
		if l.Unsigned {
			offset = hi / 2
		}
		return h(h(r+r) / steps), offset
	}
	a, b = min(a, 0), max(b, 0)
	d := h(b - a)
	if d == 0 {
		return 0, 0
	}
	o := h(h(h(float32(lo)*b)-h(float32(hi)*a)) / d)
	offset = int(min(max(math.RoundToEven(float64(o)), float64(lo)), float64(hi)))
	return h(d / steps), offset
}

func (l Linear) code(dst []int8, w []float32, scale float32, offset, lo, hi int) {
	if scale == 0 {
		return
	}
	for i, x := range w {
		q := math.RoundToEven(float64(h(x / scale)))
		dst[i] = int8(min(max(int(q)+offset, lo), hi))
	}
}
