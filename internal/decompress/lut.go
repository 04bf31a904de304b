package decompress

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/smelt-go/smelt/mil"
)

// indices are the codes of a palettized tensor, in row-major order.
type indices interface {
	codes(dst []byte, first int)
}

// lookup replaces codes by entries of lookup tables, one a block of codes.
type lookup struct {
	codes  indices
	blocks blocks  // of the codes
	table  *Tensor // [block, entry, vector]
	size   int     // entries of a table
	vector int     // elements of an entry
	axis   int     // codes along the axis that vectors extend
	inner  int     // elements behind that axis

	decoded sync.Once
	entries []float32 // of all tables, for reads
}

func (s *lookup) read(dst []float32, first int) {
	s.decoded.Do(func() { s.entries = s.table.All() })
	if s.vector == 1 {
		s.scalars(dst, first)
		return
	}
	// Element (outer, j, i) of the result is component j mod vector of the
	// entry at code (outer, j div vector, i).
	for len(dst) > 0 {
		i := first % s.inner
		j := first / s.inner % (s.axis * s.vector)
		outer := first / s.inner / (s.axis * s.vector)
		n := min(len(dst), s.inner-i, chunk)
		at := (outer*s.axis+j/s.vector)*s.inner + i
		s.component(dst[:n], at, j%s.vector)
		dst, first = dst[n:], first+n
	}
}

func (s *lookup) scalars(dst []float32, first int) {
	chunks(dst, first, func(dst []float32, first int) { s.component(dst, first, 0) })
}

// component reads one component of the entries of at most chunk codes.
func (s *lookup) component(dst []float32, first, c int) {
	var buf [chunk]byte
	s.codes.codes(buf[:len(dst)], first)
	s.blocks.runs(first, len(dst), func(from, count, block int) {
		table := s.entries[block*s.size*s.vector:]
		for i, code := range buf[from : from+count] {
			dst[from+i] = table[int(code)*s.vector+c]
		}
	})
}

// lut is constexpr_lut_to_dense, in both forms.
func (in operands) lut() (*Tensor, error) {
	v := in.op.In("indices")
	if v == nil || v.Const == nil {
		return nil, fmt.Errorf("input indices must be a constant")
	}
	p, err := pack(v.Const)
	if err != nil {
		return nil, err
	}
	if in.op.In("shape") == nil {
		return in.lookup(v.Const.Type(), p)
	}
	// CoreML6: a byte vector that holds the codes of a tensor.
	lut, err := in.tensor("lut")
	if err != nil {
		return nil, err
	}
	shape, err := in.ints("shape")
	if err != nil {
		return nil, err
	}
	n := lut.Len()
	p.bits = bits.Len(uint(n)) - 1
	if need := (mil.Volume(shape)*p.bits + 7) / 8; lut.Type.Rank() != 1 || n != 1<<p.bits || p.bits < 1 || p.bits > 8 || p.bits == 5 || p.bits == 7 || len(p.data) < need {
		return nil, fmt.Errorf("lut is %v with %d bytes of indices for shape %v", lut.Type, len(p.data), shape)
	}
	b, err := newBlocks("lut", shape, slices.Repeat([]int{1}, len(shape)))
	if err != nil {
		return nil, err
	}
	s := &lookup{codes: p, blocks: b, table: lut, size: n, vector: 1}
	return &Tensor{mil.TensorType{DType: lut.Type.DType, Shape: shape}, s}, nil
}

// lookup builds the CoreML8 form for codes of the given type.
func (in operands) lookup(t mil.TensorType, codes indices) (*Tensor, error) {
	lut, err := in.tensor("lut")
	if err != nil {
		return nil, err
	}
	n := t.Rank()
	if n < 1 || lut.Type.Rank() != n+2 || t.DType.IsSigned() || t.DType.Bits() > 8 {
		return nil, fmt.Errorf("lut is %v for indices %v", lut.Type, t)
	}
	groups, size, vector := lut.Type.Shape[:n], lut.Type.Shape[n], lut.Type.Shape[n+1]
	if size != 1<<t.DType.Bits() || vector < 1 {
		return nil, fmt.Errorf("lut is %v, %v indices want %d entries", lut.Type, t.DType, 1<<t.DType.Bits())
	}
	b, err := newBlocks("lut", t.Shape, groups)
	if err != nil {
		return nil, err
	}
	s := &lookup{codes: codes, blocks: b, table: lut, size: size, vector: vector}
	shape := slices.Clone(t.Shape)
	if vector > 1 {
		axis, err := in.ints("vector_axis")
		if err == nil && len(axis) != 1 {
			err = fmt.Errorf("vector_axis is %v, want one number", axis)
		}
		if err != nil {
			return nil, err
		}
		k, err := mil.Axis(axis[0], n)
		if err != nil {
			return nil, err
		}
		s.axis, s.inner = shape[k], mil.Volume(shape[k+1:])
		shape[k] *= vector
	}
	return &Tensor{mil.TensorType{DType: lut.Type.DType, Shape: shape}, s}, nil
}
