package kernel

import (
	"fmt"
	"slices"
)

// Rounding is what a result is rounded to.
type Rounding int

const (
	RoundNone Rounding = iota // float32
	RoundToF16
	RoundToBF16
)

// Numbers is a list of numbers as it lies in memory: one of float32, halves
// and integer codes.
type Numbers struct {
	F32    []float32
	F16    []uint16
	Codes  []byte // LSB-first stream
	Bits   int    // of a code: 1 to 8
	Signed bool   // codes are in two's complement
}

// Len is the number of numbers; 0 says that there are none.
func (v *Numbers) Len() int {
	switch {
	case v.F32 != nil:
		return len(v.F32)
	case v.F16 != nil:
		return len(v.F16)
	case v.Bits > 0:
		return len(v.Codes) * 8 / v.Bits
	}
	return 0
}

// Read stores the numbers from first on.
func (v *Numbers) Read(dst []float32, first int) {
	switch {
	case v.F32 != nil:
		copy(dst, v.F32[first:])
	case v.F16 != nil:
		F16ToF32(dst, v.F16[first:first+len(dst)])
	default:
		v.integers(dst, first)
	}
}

// Packed is a matrix of N rows of K numbers in the form of codes. Without a
// Table, a code stands for an integer; with one, for an entry. The number is
//
//	Scale · (code − Offset)            rounded
//	Scale · code, rounded, + Bias      rounded again
//
// where Scale, Offset and Bias, each of which may be empty, hold a number for
// each block of Block columns by BlockRows rows, blocks in row-major order.
// code − Offset is not rounded: offsets are integers, or the difference is
// exact.
//
// Products and decoded rows are the same bits at every level as those of
// MulF32 with decoded weights at that level. Numbers must be finite.
type Packed struct {
	N, K   int
	Bits   int    // of a code: 1 to 8
	Signed bool   // codes are in two's complement; not with a Table
	Codes  []byte // LSB-first stream, row after row

	// Table holds 1<<Bits entries of Vector numbers for every TableRows rows
	// of codes. Row r of the matrix is component r mod Vector of the entries
	// that row r/Vector of the codes names.
	Table     Numbers
	TableRows int
	Vector    int

	Block, BlockRows    int
	Scale, Offset, Bias Numbers
	Round               Rounding

	form      packedForm
	blocks    int  // along a row
	batchRows int  // rows whose scales are prepared at once
	rowBytes  int  // of codes
	f16Table  bool // entries are halves
	levels    []float32
	flags     int64
	fast      *roundConstants // if products may use the fast rounding
	normal    bool            // if no result is a subnormal half
}

// packedForm says which kernels take a matrix.
type packedForm int

const (
	formNone   packedForm = iota
	formLUT               // up to 4 bits, a table for a row
	formLUT4              // 4 bits
	formScaled            // up to 4 bits, a table made for each block
	formScaled4
	formLUT64  // 5 and 6 bits
	formLUT256 // 8 bits
	formHalves // 8 bits, 32 columns at a time, entries are halves
	formI8     // signed bytes
	formU8     // unsigned bytes
	formUN     // unsigned integers of any width
	numForms
)

// Prepare checks the fields and chooses kernels. It must be called before
// anything else, and again after a change.
func (p *Packed) Prepare() error {
	if p.N < 1 || p.K < 1 || p.Bits < 1 || p.Bits > 8 {
		return fmt.Errorf("kernel: %d rows of %d codes of %d bits", p.N, p.K, p.Bits)
	}
	p.Vector = max(p.Vector, 1)
	if p.N%p.Vector != 0 {
		return fmt.Errorf("kernel: vectors of %d do not divide %d rows", p.Vector, p.N)
	}
	if need := (p.N/p.Vector*p.K*p.Bits + 7) / 8; len(p.Codes) < need {
		return fmt.Errorf("kernel: %d bytes of codes, want %d", len(p.Codes), need)
	}
	if err := p.checkTable(); err != nil {
		return err
	}
	if err := p.checkBlocks(); err != nil {
		return err
	}
	p.rowBytes = p.K * p.Bits / 8
	p.form = p.choose()
	p.chooseRounding()
	return nil
}

func (p *Packed) checkTable() error {
	p.levels = nil
	n := p.Table.Len()
	if n == 0 {
		if p.Vector > 1 {
			return fmt.Errorf("kernel: vectors of %d without a table", p.Vector)
		}
		p.levels = integerLevels(p.Bits, p.Signed)
		return nil
	}
	if p.Signed || p.Bits == 7 {
		return fmt.Errorf("kernel: a table for %d-bit codes (signed: %v)", p.Bits, p.Signed)
	}
	rows := p.N / p.Vector
	if p.TableRows < 1 || rows%p.TableRows != 0 || n != rows/p.TableRows*p.Vector<<p.Bits {
		return fmt.Errorf("kernel: %d table entries for %d rows by %d, %d bits by %d", n, rows, p.TableRows, p.Bits, p.Vector)
	}
	p.f16Table = p.Table.F16 != nil || p.Table.F32 != nil && IsF16(p.Table.F32)
	if p.TableRows == rows && p.Vector == 1 {
		p.levels = make([]float32, n)
		p.Table.Read(p.levels, 0)
	}
	return nil
}

func (p *Packed) checkBlocks() error {
	p.blocks, p.flags = 0, 0
	params := []*Numbers{&p.Scale, &p.Offset, &p.Bias}
	if !slices.ContainsFunc(params, func(v *Numbers) bool { return v.Len() > 0 }) {
		return nil
	}
	if p.Vector > 1 || p.Block < 1 || p.BlockRows < 1 || p.K%p.Block != 0 || p.N%p.BlockRows != 0 {
		return fmt.Errorf("kernel: blocks of %d×%d in %d×%d, vectors of %d", p.BlockRows, p.Block, p.N, p.K, p.Vector)
	}
	p.blocks = p.K / p.Block
	p.batchRows = min(max(batchNumbers/p.blocks&^7, 8), maxBatch)
	for _, v := range params {
		if n := v.Len(); n > 0 && n < p.N/p.BlockRows*p.blocks {
			return fmt.Errorf("kernel: %d scales, offsets or biases, want %d", n, p.N/p.BlockRows*p.blocks)
		}
	}
	if p.Scale.Len() == 0 || p.Offset.Len() > 0 && p.Bias.Len() > 0 {
		return fmt.Errorf("kernel: blocks want a scale, and not both offset and bias")
	}
	if p.Offset.Len() > 0 {
		p.flags |= flagOffset
	}
	if p.Bias.Len() > 0 {
		p.flags |= flagBias
	}
	switch p.Round {
	case RoundToF16:
		p.flags |= flagF16
	case RoundToBF16:
		p.flags |= flagBF16
	}
	return nil
}

// choose finds the kernels for p; formNone if only the Go form takes it.
func (p *Packed) choose() packedForm {
	scaled := p.blocks > 0
	if p.K%lanes != 0 || scaled && p.Block%lanes != 0 {
		return formNone
	}
	if !scaled {
		switch {
		case p.Round != RoundNone && !p.f16Table, p.Table.Len() == 0:
			return formNone
		case p.Bits == 4:
			return formLUT4
		case p.Bits < 4:
			return formLUT
		case p.Bits < 7:
			return formLUT64
		}
		if p.f16Table && p.K%32 == 0 {
			return formHalves
		}
		return formLUT256
	}
	if p.Bits <= 4 {
		switch {
		case p.levels == nil:
			return formNone
		case p.Bits == 4:
			return formScaled4
		}
		return formScaled
	}
	bf16 := p.Round == RoundToBF16 && p.flags&flagBias == 0
	switch {
	case p.Table.Len() > 0, bf16, p.Signed && (p.Bits != 8 || p.Bias.Len() > 0):
		return formNone
	case p.Signed:
		return formI8
	case p.Bits == 8:
		return formU8
	}
	return formUN
}

// integerLevels lists the integers of all codes.
func integerLevels(bits int, signed bool) []float32 {
	if signed {
		return signedLevels[bits]
	}
	return unsignedLevels[:1<<bits]
}

var unsignedLevels = func() (out [256]float32) {
	for c := range out {
		out[c] = float32(c)
	}
	return out
}()

var signedLevels = func() (out [9][]float32) {
	for bits := 1; bits < len(out); bits++ {
		out[bits] = make([]float32, 1<<bits)
		for c := range out[bits] {
			out[bits][c] = float32(int8(c<<(8-bits)) >> (8 - bits))
		}
	}
	return out
}()
