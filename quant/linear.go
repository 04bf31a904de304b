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

func (l Linear) indivisible(cols int) error {
	return fmt.Errorf("quant: the last dimension is %d, which blocks of %d do not divide (choose another block, or keep the tensor)", cols, l.Block)
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

// Integers are the codes of a matrix.
type Integers struct {
	Codes  []int8   // [rows, cols]; unsigned codes wrap
	Scale  []uint16 // fp16, one a block in row-major order
	Offset []int8   // as Scale; nil if there is none
	Stats  Stats
}

// Quantize codes a matrix of fp16 values. Method Refit chooses scales (and
// offsets) of least squared error instead; every block ends at least as well.
func (l Linear) Quantize(w []uint16, rows, cols int, m Method) (Integers, error) {
	if err := l.check(); err != nil {
		return Integers{}, err
	}
	run := cols
	switch l.Granularity {
	case PerTensor:
		run = rows * cols
	case PerBlock:
		if run = l.Block; cols%run != 0 {
			return Integers{}, l.indivisible(cols)
		}
	}
	out := Integers{Codes: make([]int8, len(w)), Scale: make([]uint16, len(w)/run)}
	if l.HasOffset() {
		out.Offset = make([]int8, len(out.Scale))
	}
	x := make([]float32, run)
	for g := range out.Scale {
		half.F16ToF32(x, w[g*run:][:run])
		lo, hi := minMax(x)
		if math.IsInf(float64(lo), 0) || math.IsInf(float64(hi), 0) || lo != lo || hi != hi {
			return Integers{}, fmt.Errorf("quant: block %d has weights that are not finite", g)
		}
		p := l.params(lo, hi)
		if m == Refit {
			p = l.refit(x, lo, hi, p)
		}
		out.Scale[g] = half.FromF32(p.scale)
		if out.Offset != nil {
			out.Offset[g] = int8(p.offset)
		}
		l.code(out.Codes[g*run:][:run], x, p)
		out.Stats.Add(l.stats(x, p))
	}
	return out, nil
}

// linearParams are the parameters of a block; scale is an fp16 value.
type linearParams struct {
	scale  float32
	offset int
}

// h rounds to fp16.
func h(x float32) float32 { return half.ToF32(half.FromF32(x)) }

// params are those for a range of weights.
func (l Linear) params(a, b float32) linearParams {
	lo, hi := l.limits()
	steps := float32(hi - lo)
	if l.Symmetric {
		r := max(abs(a), abs(b))
		p := linearParams{scale: h(h(r+r) / steps)}
		if l.Unsigned {
			p.offset = hi / 2
		}
		return p
	}
	a, b = min(a, 0), max(b, 0)
	d := h(b - a)
	if d == 0 {
		return linearParams{}
	}
	o := h(h(h(float32(lo)*b)-h(float32(hi)*a)) / d)
	offset := int(min(max(math.RoundToEven(float64(o)), float64(lo)), float64(hi)))
	return linearParams{h(d / steps), offset}
}

// at is the code of a weight.
func (l Linear) at(x float32, p linearParams, lo, hi int) int {
	if p.scale == 0 {
		return p.offset
	}
	q := math.RoundToEven(float64(h(x / p.scale)))
	return int(min(max(q+float64(p.offset), float64(lo)), float64(hi)))
}

func (l Linear) code(dst []int8, w []float32, p linearParams) {
	lo, hi := l.limits()
	for i, x := range w {
		dst[i] = int8(l.at(x, p, lo, hi))
	}
}

// stats measures a block as it is decoded in fp16.
func (l Linear) stats(w []float32, p linearParams) Stats {
	lo, hi := l.limits()
	s := Stats{Elements: int64(len(w))}
	for _, x := range w {
		d := float64(x) - float64(h(p.scale*float32(l.at(x, p, lo, hi)-p.offset)))
		s.Energy += float64(float64(x) * float64(x))
		s.Error += float64(d * d)
	}
	return s
}

// refit tries narrower ranges, and from each the scale that is best for the
// codes it gives.
func (l Linear) refit(w []float32, a, b float32, best linearParams) linearParams {
	lo, hi := l.limits()
	least := l.stats(w, best).Error
	try := func(p linearParams) bool {
		if p.scale == 0 || math.IsInf(float64(p.scale), 0) {
			return false
		}
		e := l.stats(w, p).Error
		if e < least {
			best, least = p, e
			return true
		}
		return false
	}
	const steps = 10
	width := float32(0.6) / steps
	if l.Bits == 8 {
		width = 0.1 / steps
	}
	for i := range steps {
		keep := 1 - float32(width*float32(i))
		p := l.params(h(a*keep), h(b*keep))
		for range 3 {
			try(p)
			var qq, qw float64
			for _, x := range w {
				q := float64(l.at(x, p, lo, hi) - p.offset)
				qq += float64(q * q)
				qw += float64(q * float64(x))
			}
			if qq == 0 {
				break
			}
			p.scale = h(float32(qw / qq))
		}
		try(p)
	}
	return best
}
