package quant

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/bitpack"
	"github.com/smelt-go/smelt/internal/half"
)

// Turbo is TurboQuant for weights (Zandieh et al., "TurboQuant: Online Vector
// Quantization with Near-optimal Distortion Rate", 2025): rows are rotated, which
// makes their elements nearly normal whatever they were, and coded with the
// table that is best for normal numbers. There is no stock runtime for it.
//
// A row x of in columns is stored as follows.
//
//	y = H·(signs ∘ x)   for runs of 2^k columns, the largest power of two that
//	                    divides in; H is the Hadamard matrix of that order
//	                    over √2^k, with entry (i, j) negative if i and j have
//	                    an odd number of bits in common
//	y ≈ scale·level[code], a scale for every Group columns
//
// signs are −1 where bit j mod 64 of SplitMix64's output number j div 64 + 1, from
// seed 42, is set. level has 2^Bits entries in ascending order, those of Lloyd and
// Max for variance 1. Since the rotation is its own inverse up to the signs,
// decoding rotates back and multiplies by the signs.
//
// Parts of a matrix [out, in] are weight, U32 [out, in·Bits/32], codes as one
// little-endian bit stream, and scales, F16 [out, in/Group]. Size: Bits + 16/Group
// bits a weight.
//
// With method RTN scales are of least squares for the codes, and codes the nearest
// for the scale, in turns from the root mean square on: about a quarter less error
// at 4 bits than the root mean square itself has. Refit starts from other scales,
// too. The other methods want a Feedback of the turned space (NewTurnedFeedback);
// an importance of columns means little there, where every column has a part of
// all, and Encode does not look at it.
type Turbo struct {
	Bits  int // 1 to 8
	Group int // 16, 32, 64, 128 or 256; 0: a row
}

// turboSeed makes the signs.
const turboSeed = 42

// minTurn is the order of the smallest rotation.
const minTurn = 16

// NewTurbo checks bits and group.
func NewTurbo(bits, group int) (Turbo, error) {
	t := Turbo{bits, group}
	switch {
	case bits < 1 || bits > 8:
		return t, fmt.Errorf("quant: turboquant has no %d-bit codes (want 1 to 8)", bits)
	case group != 0 && (group < 16 || group > 256 || group&(group-1) != 0):
		return t, fmt.Errorf("quant: turboquant has no groups of %d (want 16, 32, 64, 128, 256, or 0 for a row)", group)
	}
	return t, nil
}

func (t Turbo) String() string {
	if t.Group == 0 {
		return fmt.Sprintf("turboquant %d-bit per row", t.Bits)
	}
	return fmt.Sprintf("turboquant %d-bit g%d", t.Bits, t.Group)
}

// Parts lists weight and scales.
func (t Turbo) Parts(dt checkpoint.DType, shape []int) ([]Part, error) {
	if _, err := NewTurbo(t.Bits, t.Group); err != nil {
		return nil, err
	}
	if err := checkMatrix(dt, shape, max(t.Group, 1)); err != nil {
		return nil, err
	}
	cols := shape[len(shape)-1]
	if n := turn(cols); n < minTurn {
		return nil, fmt.Errorf("the last dimension is %d: runs of %d columns are too short to rotate (keep the tensor)", cols, n)
	}
	if cols*t.Bits%32 != 0 {
		return nil, fmt.Errorf("the last dimension is %d, whose %d-bit codes do not fill 32-bit words (choose other bits, or keep the tensor)", cols, t.Bits)
	}
	return []Part{
		{"weight", checkpoint.U32, withLast(shape, cols*t.Bits/32)},
		{"scales", checkpoint.F16, withLast(shape, cols/t.group(cols))},
	}, nil
}

// group is the number of columns that share a scale.
func (t Turbo) group(cols int) int {
	if t.Group == 0 {
		return cols
	}
	return t.Group
}

// turn is the largest power of two that divides n.
func turn(n int) int { return n & -n }

// maxTurboGroup is the largest group that has a scale but a row.
const maxTurboGroup = 256

// Encode codes rows.
func (t Turbo) Encode(dst [][]byte, r Rows, m Method) error {
	return t.encodeMeasured(dst, r, m, new(Stats))
}

// encodeMeasured codes rows and adds up Error, which a rotation does not change,
// and what error feedback knows more.
func (t Turbo) encodeMeasured(dst [][]byte, r Rows, m Method, st *Stats) error {
	if m.Calibrated() {
		return t.encodeFeedback(dst, r, st)
	}
	cols, group := r.Cols, t.group(r.Cols)
	y := make([]float32, cols)
	codes := make([]byte, cols)
	signs := Signs(turboSeed, cols)
	cells := newTurboCells(t.Bits)
	for row := 0; row*cols < len(r.W); row++ {
		copy(y, r.W[row*cols:][:cols])
		flip(y, signs)
		Hadamard(y, turn(cols))
		for g := range cols / group {
			v, q := y[g*group:][:group], codes[g*group:][:group]
			s := cells.fit(q, v, m)
			scale := half.ToF32(s)
			if math.IsInf(float64(scale), 0) {
				return errRange
			}
			putHalf(dst[1], row*cols/group+g, s)
			for i, c := range q {
				e := float64(v[i] - float32(scale*cells.value(c)))
				st.Error += float64(e * e)
			}
		}
		bitpack.Pack(dst[0][row*cols*t.Bits/8:], codes, t.Bits)
	}
	return nil
}

// Decode decodes rows in float32 and rounds to dt.
func (t Turbo) Decode(dst []float32, src [][]byte, cols int, dt checkpoint.DType) {
	t.DecodeFloat32(dst, src, cols)
	for i, x := range dst {
		dst[i] = round(x, dt)
	}
}

// DecodeFloat32 decodes rows without rounding.
func (t Turbo) DecodeFloat32(dst []float32, src [][]byte, cols int) {
	group := t.group(cols)
	codes := make([]byte, cols)
	signs := Signs(turboSeed, cols)
	levels := turboLevels[t.Bits]
	n := len(levels)
	var table [256]float32
	for i, l := range levels {
		table[n+i], table[n-1-i] = l, -l
	}
	for row := 0; row*cols < len(dst); row++ {
		bitpack.Unpack(codes, src[0][row*cols*t.Bits/8:], t.Bits)
		x := dst[row*cols:][:cols]
		for g := range cols / group {
			s := element(src[1], row*cols/group+g, checkpoint.F16)
			for i := g * group; i < (g+1)*group; i++ {
				x[i] = s * table[codes[i]]
			}
		}
		Hadamard(x, turn(cols))
		flip(x, signs)
	}
}

// checkTurbo refuses formats of codec turboquant that do not exist.
func (f Format) checkTurbo() error {
	if f.Rounding != "" || f.Granularity != "" || f.Unsigned || f.Asymmetric {
		return fmt.Errorf("codec turboquant has no rounding, granularity, unsigned or asymmetric")
	}
	_, err := NewTurbo(f.Bits, f.GroupSize)
	return trim(err)
}
