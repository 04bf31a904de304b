package decompress

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// Matrix describes t to the kernels that multiply by compressed weights: a
// row for each step of the first axis. It is nil if t is not made of codes
// with tables or scales that they know.
func (t *Tensor) Matrix() *kernel.Packed {
	if t.Type.Rank() < 1 || t.Len() == 0 {
		return nil
	}
	p := &kernel.Packed{N: t.NumRows(), K: t.RowLen()}
	ok := false
	switch s := t.src.(type) {
	case *scaled:
		ok = s.matrix(p)
	case *lookup:
		ok = s.matrix(p)
	}
	if !ok || p.Prepare() != nil {
		return nil
	}
	return p
}

func (s *scaled) matrix(p *kernel.Packed) bool {
	if s.codes == nil || !s.blocks.matrix(p.N, p.K, &p.BlockRows, &p.Block) {
		return false
	}
	p.Codes, p.Bits, p.Signed = s.codes.data, s.codes.bits, s.codes.dtype.IsSigned()
	p.Scale = numbersOf(s.scale)
	if s.offset != nil {
		p.Offset = numbersOf(s.offset)
		// The difference is rounded on its own, except where it is exact.
		if s.half && !s.once && p.Offset.Bits == 0 && !smallIntegers(s.offset.All()) {
			return false
		}
	}
	if s.half {
		p.Round = kernel.RoundToF16
	}
	return true
}

func (s *lookup) matrix(p *kernel.Packed) bool {
	codes, ok := s.codes.(packed)
	if !ok {
		return false
	}
	p.Codes, p.Bits = codes.data, codes.bits
	if p.Vector = s.vector; s.vector > 1 {
		// Vectors run along the rows.
		if s.inner != p.K {
			return false
		}
	}
	var cols int
	if !s.blocks.matrix(p.N/s.vector, p.K, &p.TableRows, &cols) || cols != p.K {
		return false
	}
	p.Table = numbersOf(s.table)
	return true
}

// matrix describes blocks as rows×cols of a matrix of n rows of k.
func (b blocks) matrix(n, k int, rows, cols *int) bool {
	switch len(b.dims) {
	case 0:
		*rows, *cols = n, k
		return true
	case 1:
		width := n * k / b.group[0]
		switch {
		case width%k == 0:
			*rows, *cols = width/k, k
		case k%width == 0:
			*rows, *cols = 1, width
		default:
			return false
		}
		return true
	case 2:
		*rows, *cols = n/b.group[0], k/b.group[1]
		return b.dims[0] == n && b.dims[1] == k
	}
	return false
}

// numbersOf is the elements of t where they lie, or decoded where kernels
// cannot read them there.
func numbersOf(t *Tensor) kernel.Numbers {
	p, ok := t.src.(packed)
	n := t.Len()
	switch {
	case ok && p.dtype == mil.Float16 && !cpu.IsBigEndian:
		ptr := unsafe.Pointer(unsafe.SliceData(p.data))
		if uintptr(ptr)%2 == 0 {
			return kernel.Numbers{F16: unsafe.Slice((*uint16)(ptr), n)}
		}
	case ok && p.bits <= 8 && !p.dtype.IsFloat():
		return kernel.Numbers{Codes: p.data, Bits: p.bits, Signed: p.dtype.IsSigned()}
	}
	return kernel.Numbers{F32: t.All()}
}

// smallIntegers says that differences of x to codes are halves.
func smallIntegers(x []float32) bool {
	for _, v := range x {
		if v != float32(int16(v)) || v < -1024 || v > 1024 {
			return false
		}
	}
	return true
}
