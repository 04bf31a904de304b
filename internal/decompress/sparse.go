package decompress

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// mask marks the elements of a tensor that are stored.
type mask struct {
	bits  []byte // LSB-first
	shape []int
	n     int   // elements
	ones  []int // marked elements before every 64th byte
}

const maskStride = 64

func newMask(b []byte, shape []int) (*mask, error) {
	m := &mask{bits: b, shape: shape, n: mil.Volume(shape)}
	if len(b) < (m.n+7)/8 {
		return nil, fmt.Errorf("mask has %d bytes for %v", len(b), shape)
	}
	m.bits = b[:(m.n+7)/8]
	if k := m.n % 8; k > 0 && m.bits[len(m.bits)-1]>>k != 0 {
		return nil, fmt.Errorf("mask marks elements behind the last of %v", shape)
	}
	total := 0
	for i, x := range m.bits {
		if i%maskStride == 0 {
			m.ones = append(m.ones, total)
		}
		total += bits.OnesCount8(x)
	}
	m.ones = append(m.ones, total)
	return m, nil
}

// total is the number of marked elements.
func (m *mask) total() int { return m.ones[len(m.ones)-1] }

func (m *mask) has(i int) bool { return m.bits[i/8]>>(i%8)&1 == 1 }

// before is the number of marked elements before element i.
func (m *mask) before(i int) int {
	if i >= m.n {
		return m.total()
	}
	b := i / 8
	n := m.ones[b/maskStride]
	for _, x := range m.bits[b/maskStride*maskStride : b] {
		n += bits.OnesCount8(x)
	}
	return n + bits.OnesCount8(m.bits[b]&(1<<(i%8)-1))
}

// spreadCodes puts stored codes where the mask marks, 0 elsewhere.
type spreadCodes struct {
	mask   *mask
	stored indices
}

func (s spreadCodes) codes(dst []byte, first int) {
	lo := s.mask.before(first)
	stored := make([]byte, s.mask.before(first+len(dst))-lo)
	s.stored.codes(stored, lo)
	for i := range dst {
		dst[i] = 0
		if s.mask.has(first + i) {
			dst[i] = stored[0]
			stored = stored[1:]
		}
	}
}

// spread puts stored elements where the mask marks, 0 elsewhere.
type spread struct {
	mask *mask
	data source
}

func (s spread) read(dst []float32, first int) {
	chunks(dst, first, func(dst []float32, first int) {
		var buf [chunk]float32
		lo := s.mask.before(first)
		stored := buf[:s.mask.before(first+len(dst))-lo]
		if len(stored) > 0 {
			s.data.read(stored, lo)
		}
		for i := range dst {
			dst[i] = 0
			if s.mask.has(first + i) {
				dst[i] = stored[0]
				stored = stored[1:]
			}
		}
	})
}

// sparse is a tensor of which only the marked elements count.
type sparse struct {
	mask  *mask
	dtype mil.DType
	data  source // all elements; those the mask leaves out are anything
}

// masked zeroes what the mask leaves out.
type masked struct{ sparse }

func (s masked) read(dst []float32, first int) {
	s.data.read(dst, first)
	for i := range dst {
		if !s.mask.has(first + i) {
			dst[i] = 0
		}
	}
}

func (s *sparse) dense() *Tensor {
	return &Tensor{mil.TensorType{DType: s.dtype, Shape: s.mask.shape}, masked{*s}}
}

func (s *sparse) maskTensor() *Tensor {
	return &Tensor{mil.TensorType{DType: mil.UInt1, Shape: s.mask.shape}, packed{s.mask.bits, mil.UInt1, 1}}
}

// nonzero is the vector of the marked elements, for a consumer that wants
// them by themselves.
func (s *sparse) nonzero() *Tensor {
	return &Tensor{mil.T(s.dtype, s.mask.total()), &gathered{s}}
}

// gathered lists the marked elements.
type gathered struct{ *sparse }

func (s *gathered) read(dst []float32, first int) {
	lo := s.find(first)
	for len(dst) > 0 {
		var buf [chunk]float32
		n := min(chunk, s.mask.n-lo)
		s.data.read(buf[:n], lo)
		for i := range n {
			if len(dst) > 0 && s.mask.has(lo+i) {
				dst[0] = buf[i]
				dst = dst[1:]
			}
		}
		lo += n
	}
}

// find is the position of marked element k.
func (s *gathered) find(k int) int {
	i, _ := slices.BinarySearch(s.mask.ones[:len(s.mask.ones)-1], k+1)
	at := max(i-1, 0) * maskStride * 8
	for n := s.mask.ones[max(i-1, 0)]; ; at++ {
		if s.mask.has(at) {
			if n == k {
				return at
			}
			n++
		}
	}
}

// spread reads a mask and the elements it places.
func (in operands) spread(maskParam, dataParam string) (*sparse, error) {
	m, err := in.mask(maskParam)
	if err != nil {
		return nil, err
	}
	// The result of another sparse op is known in place already.
	if v := in.op.In(dataParam); v != nil && v.Op != nil && v.Const == nil && slices.Index(v.Op.Outputs, v) == 1 {
		s, err := operands{v.Op, in.o}.sparse()
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", v.Op.Kind, v.Op.Name, err)
		}
		if slices.Equal(s.mask.shape, m.shape) && slices.Equal(s.mask.bits, m.bits) {
			return s, nil
		}
	}
	data, err := in.tensor(dataParam)
	if err != nil {
		return nil, err
	}
	if err := m.fits(dataParam, data.Type); err != nil {
		return nil, err
	}
	return &sparse{m, data.Type.DType, spread{m, data.src}}, nil
}

func (m *mask) fits(name string, t mil.TensorType) error {
	if t.Rank() != 1 || t.Shape[0] != m.total() {
		return fmt.Errorf("%s is %v, the mask marks %d elements", name, t, m.total())
	}
	return nil
}

func (in operands) mask(param string) (*mask, error) {
	v := in.op.In(param)
	if v == nil {
		return nil, fmt.Errorf("input %s is missing", param)
	}
	if v.Const == nil {
		if v.Op == nil || slices.Index(v.Op.Outputs, v) != 0 {
			return nil, fmt.Errorf("input %s is not the mask of a sparse op", param)
		}
		s, err := operands{v.Op, in.o}.sparse()
		if err != nil {
			return nil, err
		}
		return s.mask, nil
	}
	b, err := mil.ConstBytes(v.Const)
	if err != nil {
		return nil, err
	}
	shape := v.Const.Type().Shape
	if in.op.In("shape") != nil { // CoreML6: a byte vector
		if shape, err = in.ints("shape"); err != nil {
			return nil, err
		}
	}
	return newMask(b, shape)
}

// sparse evaluates an op with outputs (mask, nonzero_data).
func (in operands) sparse() (*sparse, error) {
	switch in.op.Kind {
	case "constexpr_sparse_blockwise_shift_scale":
		s, err := in.spread("data_mask", "nonzero_data")
		if err != nil {
			return nil, err
		}
		t, err := in.shiftScale(mil.TensorType{DType: s.dtype, Shape: s.mask.shape}, s.data)
		if err != nil {
			return nil, err
		}
		return &sparse{s.mask, t.Type.DType, t.src}, nil
	case "constexpr_lut_to_sparse":
		m, err := in.mask("indices_mask")
		if err != nil {
			return nil, err
		}
		v := in.op.In("indices_nonzero_data")
		if v == nil || v.Const == nil {
			return nil, fmt.Errorf("input indices_nonzero_data must be a constant")
		}
		p, err := pack(v.Const)
		if err != nil {
			return nil, err
		}
		if err := m.fits("indices_nonzero_data", v.Const.Type()); err != nil {
			return nil, err
		}
		t, err := in.lookup(mil.TensorType{DType: v.Const.Type().DType, Shape: m.shape}, spreadCodes{m, p})
		if err != nil {
			return nil, err
		}
		if m, err = m.expanded(t.Type.Shape); err != nil {
			return nil, err
		}
		return &sparse{m, t.Type.DType, t.src}, nil
	}
	return nil, fmt.Errorf("no decoder for this operator")
}

// expanded repeats the mask along the one axis in which shape is a multiple.
func (m *mask) expanded(shape []int) (*mask, error) {
	if slices.Equal(m.shape, shape) {
		return m, nil
	}
	k := 0
	for shape[k] == m.shape[k] {
		k++
	}
	v, inner := shape[k]/m.shape[k], mil.Volume(shape[k+1:])
	n := mil.Volume(shape)
	out := make([]byte, (n+7)/8)
	for i := range n {
		outer, j, rest := i/inner/shape[k], i/inner%shape[k], i%inner
		if m.has((outer*m.shape[k]+j/v)*inner + rest) {
			out[i/8] |= 1 << (i % 8)
		}
	}
	return newMask(out, shape)
}
