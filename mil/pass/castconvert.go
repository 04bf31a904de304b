package pass

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/littleendian"
	"github.com/smelt-go/smelt/mil"
)

// floats is what elements pass through on their way from one type to another:
// small enough for the first-level cache.
type floats [4096]float32

// convert turns the elements src, of type from, into elements dst of type To,
// times Factor. It reports whether all are finite and within To's range. dst
// and src may be the same memory if their elements are of one size.
func (c *CastConst) convert(dst, src []byte, from mil.DType, buf *floats) bool {
	if from == mil.BFloat16 && c.To == mil.Float16 {
		s, aligned := littleendian.View[uint16](src)
		if d, ok := littleendian.View[uint16](dst); ok && aligned {
			return c.holds(kernel.BF16ToF16(d, s, c.Factor))
		}
	}
	peak := uint32(0)
	in, out := from.Bits()/8, c.To.Bits()/8
	for len(dst) > 0 {
		f := buf[:min(len(buf), len(dst)/out)]
		decode(f, src[:len(f)*in], from)
		if c.Factor != 1 {
			kernel.MulScalar(f, f, c.Factor)
		}
		peak = max(peak, kernel.MaxBits(f))
		encode(dst[:len(f)*out], f, c.To)
		dst, src = dst[len(f)*out:], src[len(f)*in:]
	}
	return c.holds(peak)
}

// holds reports whether To has numbers of the magnitude with the bits peak.
func (c *CastConst) holds(peak uint32) bool {
	if c.To == mil.Float16 {
		return peak <= math.Float32bits(FP16Max)
	}
	return peak <= math.Float32bits(math.MaxFloat32)
}

// decode widens, or rounds, little-endian elements to float32.
func decode(f []float32, p []byte, from mil.DType) {
	switch from {
	case mil.Float16, mil.BFloat16:
		widen := kernel.F16ToF32
		if from == mil.BFloat16 {
			widen = kernel.BF16ToF32
		}
		if h, ok := littleendian.View[uint16](p); ok {
			widen(f, h)
			return
		}
		var h [256]uint16
		for len(f) > 0 {
			n := min(len(f), len(h))
			for i := range h[:n] {
				h[i] = binary.LittleEndian.Uint16(p[2*i:])
			}
			widen(f, h[:n])
			f, p = f[n:], p[2*n:]
		}
	case mil.Float32:
		if v, ok := littleendian.View[float32](p); ok {
			copy(f, v)
			return
		}
		for i := range f {
			f[i] = math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))
		}
	case mil.Float64:
		for i := range f {
			f[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(p[8*i:])))
		}
	}
}

// encode stores float32 elements as little-endian ones of type to.
func encode(p []byte, f []float32, to mil.DType) {
	if to == mil.Float32 {
		if v, ok := littleendian.View[float32](p); ok {
			copy(v, f)
			return
		}
		for i, x := range f {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(x))
		}
		return
	}
	if h, ok := littleendian.View[uint16](p); ok {
		kernel.F32ToF16(h, f)
		return
	}
	var h [256]uint16
	for len(f) > 0 {
		n := min(len(f), len(h))
		kernel.F32ToF16(h[:n], f[:n])
		for i, x := range h[:n] {
			binary.LittleEndian.PutUint16(p[2*i:], x)
		}
		f, p = f[n:], p[2*n:]
	}
}

// fault says which of the source's elements To cannot hold, and why; f starts
// with element first.
func (c *CastConst) fault(f []float32, first int64) error {
	limit := float32(math.MaxFloat32)
	if c.To == mil.Float16 {
		limit = FP16Max
	}
	for i, x := range f {
		x *= c.Factor
		if x <= limit && x >= -limit {
			continue
		}
		at := first + int64(i)
		switch {
		case x != x:
			return fmt.Errorf("pass: const %q: element %d is NaN", c.Name, at)
		case math.IsInf(float64(x), 0):
			return fmt.Errorf("pass: const %q: element %d is infinite", c.Name, at)
		}
		return fmt.Errorf("pass: const %q: element %d is %g, beyond fp16's %d (scale the residual stream, or keep it in fp32)", c.Name, at, x, FP16Max)
	}
	return fmt.Errorf("pass: const %q: its source changed while it was read", c.Name)
}
