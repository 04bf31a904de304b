package quant

import (
	"fmt"

	"github.com/smelt-go/smelt/internal/half"
)

// Decode decodes rows of a dense form from the data of its constants: what the
// form's operators make of them, in fp16. Vectors and forms that leave weights out
// are an error.
func (m *Form) Decode(dst []float32, data [][]byte, first int) error {
	f := m.Format
	if f.sparse() || f.vector() > 1 {
		return fmt.Errorf("quant: %s is not decoded here", f.Describe())
	}
	n := len(dst)
	codes := make([]byte, n)
	unpackAny(codes, data[0], first*m.Cols, f.Bits)
	switch f.Codec {
	case "palette":
		m.decodePalette(dst, codes, data, first)
	case "linear":
		m.decodeLinear(dst, codes, data, first)
	}
	return nil
}

func (m *Form) decodePalette(dst []float32, codes []byte, data [][]byte, first int) {
	f := m.Format
	size := 1 << f.Bits
	table := make([]float32, size)
	scales := data[len(data)-1]
	for r := 0; r*m.Cols < len(dst); r++ {
		g := (first + r) / m.groupRows()
		for i := range table {
			if f.Table == "int8" {
				table[i] = h(half.ToF32(getHalf(data[2], 0)) * float32(int8(data[1][g*size+i])))
			} else {
				table[i] = half.ToF32(getHalf(data[1], g*size+i))
			}
			if f.ChannelScale {
				table[i] = h(half.ToF32(getHalf(scales, first+r)) * table[i])
			}
		}
		for i := r * m.Cols; i < (r+1)*m.Cols; i++ {
			dst[i] = table[codes[i]]
		}
	}
}

func (m *Form) decodeLinear(dst []float32, codes []byte, data [][]byte, first int) {
	l := m.Format.Linear()
	perRow := len(data[1]) / 2 / m.Rows
	signed := func(c byte) int {
		if l.Unsigned {
			return int(c)
		}
		return int(int8(c<<(8-l.Bits))) >> (8 - l.Bits)
	}
	offsets := []byte(nil)
	if l.HasOffset() {
		offsets = make([]byte, len(data[1])/2)
		unpackAny(offsets, data[2], 0, l.Bits)
	}
	for i := range dst {
		b := 0
		if perRow > 0 {
			b = (first*m.Cols + i) * perRow / m.Cols
		}
		p := linearParams{scale: half.ToF32(getHalf(data[1], b))}
		if offsets != nil {
			p.offset = signed(offsets[b])
		}
		dst[i] = p.decode(signed(codes[i]))
	}
}

func getHalf(b []byte, i int) uint16 { return uint16(b[2*i]) | uint16(b[2*i+1])<<8 }

// unpackAny unpacks codes of a stream from the given one on.
func unpackAny(codes, src []byte, first, bits int) {
	for i := range codes {
		at := (first + i) * bits
		v := uint(src[at/8]) >> (at % 8)
		if at%8+bits > 8 {
			v |= uint(src[at/8+1]) << (8 - at%8)
		}
		codes[i] = byte(v) & byte(1<<bits-1)
	}
}
