package decompress

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/milblob"
	"github.com/smelt-go/smelt/mil"
)

// packed decodes the bytes of a constant: elements of 1 to 8 bits as one
// LSB-first stream, wider ones little-endian.
type packed struct {
	data  []byte
	dtype mil.DType
	bits  int
}

func pack(c mil.Const) (packed, error) {
	t := c.Type()
	b, err := mil.ConstBytes(c)
	if err != nil {
		return packed{}, err
	}
	if n := t.NumElements(); n == mil.Unknown || int64(len(b)) < t.NumBytes() {
		return packed{}, fmt.Errorf("constant %v has %d bytes, want %d", t, len(b), t.NumBytes())
	}
	switch d := t.DType; d {
	case mil.String, mil.Float8E4M3FN, mil.Float8E5M2, mil.InvalidDType:
		return packed{}, fmt.Errorf("%v constants cannot be decoded", d)
	default:
		return packed{b, d, d.Bits()}, nil
	}
}

// codes unpacks unsigned codes of at most 8 bits.
func (p packed) codes(dst []byte, first int) {
	// The constructor has checked the length; the width is one that exists.
	_ = milblob.Unpack(dst, p.data, p.bits, first)
}

func (p packed) read(dst []float32, first int) {
	switch p.dtype {
	case mil.Float16:
		chunks(dst, first, func(dst []float32, first int) {
			var buf [chunk]uint16
			b := p.data[2*first : 2*first+2*len(dst)]
			for i := range dst {
				buf[i] = binary.LittleEndian.Uint16(b[2*i:])
			}
			half.F16ToF32(dst, buf[:len(dst)])
		})
	case mil.BFloat16:
		b := p.data[2*first:]
		for i := range dst {
			dst[i] = half.FromBF16(binary.LittleEndian.Uint16(b[2*i:]))
		}
	case mil.Float32:
		b := p.data[4*first:]
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case mil.Float64:
		b := p.data[8*first:]
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
		}
	default:
		p.readInts(dst, first)
	}
}

func (p packed) readInts(dst []float32, first int) {
	if p.bits > 8 {
		w := p.bits / 8
		b := p.data[first*w:]
		for i := range dst {
			dst[i] = float32(p.wide(b[i*w : (i+1)*w]))
		}
		return
	}
	levels := p.levels()
	chunks(dst, first, func(dst []float32, first int) {
		var buf [chunk]byte
		p.codes(buf[:len(dst)], first)
		for i, c := range buf[:len(dst)] {
			dst[i] = levels[c]
		}
	})
}

// wide is an integer of 16, 32 or 64 bits.
func (p packed) wide(b []byte) float64 {
	var u uint64
	switch len(b) {
	case 2:
		u = uint64(binary.LittleEndian.Uint16(b))
	case 4:
		u = uint64(binary.LittleEndian.Uint32(b))
	default:
		u = binary.LittleEndian.Uint64(b)
	}
	if p.dtype.IsSigned() {
		shift := 64 - p.bits
		return float64(int64(u) << shift >> shift)
	}
	return float64(u)
}

// levels are the values of the codes of a type of at most 8 bits.
func (p packed) levels() []float32 {
	out := make([]float32, 1<<p.bits)
	for c := range out {
		v := c
		if p.dtype.IsSigned() && c >= len(out)/2 {
			v -= len(out)
		}
		out[c] = float32(v)
	}
	return out
}
