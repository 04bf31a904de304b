package kernel

import (
	"math"

	"github.com/smelt-go/smelt/internal/half"
)

// roundConstants parametrize the fast rounding of products: the bits of an
// exponent, the least power of two that counts, and the number that is added
// and subtracted, for a power of two of 1.
type roundConstants struct {
	mask          uint32
	least, factor float32
}

var (
	roundF16  = &roundConstants{0xff << 23, 0x1p-14, 0x1.8p13}
	roundBF16 = &roundConstants{0xff << 23, 0x1p-126, 0x1.8p16}
)

// chooseRounding finds out what shortcuts the sizes of scales allow.
func (p *Packed) chooseRounding() {
	p.fast, p.normal = nil, false
	if p.blocks == 0 || p.Round == RoundNone {
		return
	}
	code := float64(int(1) << p.Bits)
	integers := p.Table.Len() == 0
	if !integers {
		_, code = p.Table.bounds()
	}
	if p.Offset.Len() > 0 {
		_, most := p.Offset.bounds()
		code += most
		integers = integers && p.Offset.Bits > 0
	}
	least, most := p.Scale.bounds()
	least2, bias := p.Bias.bounds()
	most = code*most + bias
	// Products are normal numbers or 0. A sum with a bias may be subnormal in
	// fp16: then it is exact, if the bias is a half.
	switch {
	case p.Round == RoundToF16 && most < 65504:
		p.fast = roundF16
		p.normal = integers && least >= 0x1p-14 && (p.Bias.Len() == 0 || p.Bias.F16 != nil)
	case p.Round == RoundToBF16 && most < 0x1p100:
		p.fast = roundBF16
		p.normal = integers && least >= 0x1p-90 && least2 >= 0x1p-120
	}
}

// bounds are the least and the largest magnitude, zeros left out of the first;
// NaN counts as infinite.
func (v *Numbers) bounds() (least, most float64) {
	switch {
	case v.Len() == 0:
		return math.Inf(1), 0
	case v.Bits > 0:
		return 0, float64(int(1) << v.Bits)
	case v.F16 != nil:
		var lo, hi uint16 = 0x7bff, 0
		for _, h := range v.F16 {
			h &= 0x7fff
			hi = max(hi, h)
			if h != 0 {
				lo = min(lo, h)
			}
		}
		if hi >= 0x7c00 {
			return 0, math.Inf(1)
		}
		return float64(half.ToF32(lo)), float64(half.ToF32(hi))
	}
	least = math.Inf(1)
	for _, x := range v.F32 {
		a := math.Abs(float64(x))
		if !(a <= math.MaxFloat32) {
			return 0, math.Inf(1)
		}
		most = max(most, a)
		if a > 0 {
			least = min(least, a)
		}
	}
	return least, most
}
