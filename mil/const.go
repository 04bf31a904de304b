package mil

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/x448/float16"
)

// Const is the content of a constant. It may be lazy: nothing needs to be in
// memory before WriteTo is called.
//
// WriteTo writes exactly Type().NumBytes() bytes: row-major little-endian
// elements; sub-byte elements are one LSB-first bit stream, zero-padded at
// the end (the packing of MILBlob v2). A bool is one byte. WriteTo may be
// called more than once and always writes the same bytes.
type Const interface {
	Type() TensorType
	io.WriterTo
}

// A RawConst has its bytes at hand, in memory or memory-mapped. The caller
// must not change them.
type RawConst interface {
	Const
	Raw() []byte
}

// A ReadRange fills dst with packed bytes of a constant from offset off on. The
// range lies within the constant and holds whole elements of whole bytes. It
// may be called by several goroutines at a time.
type ReadRange func(dst []byte, off int64) error

// A RangeConst can give any part of its bytes, or says that it cannot.
type RangeConst interface {
	Const
	Ranges() (ReadRange, bool)
}

// Ranges returns a way to read parts of c, if it is a RangeConst that has one
// or has its bytes at hand.
func Ranges(c Const) (ReadRange, bool) {
	switch c := c.(type) {
	case RangeConst:
		return c.Ranges()
	case RawConst:
		b := c.Raw()
		if c.Type().DType == String || int64(len(b)) != c.Type().NumBytes() {
			return nil, false // whoever streams it finds out
		}
		return func(dst []byte, off int64) error {
			copy(dst, b[off:])
			return nil
		}, true
	}
	return nil, false
}

// ConstBytes returns the packed bytes of c, without a copy where possible.
func ConstBytes(c Const) ([]byte, error) {
	if r, ok := c.(RawConst); ok {
		return r.Raw(), nil
	}
	var b bytes.Buffer
	b.Grow(int(c.Type().NumBytes()))
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Literal is a constant held in memory.
type Literal struct {
	T    TensorType
	Data []byte   // packed elements, as Const.WriteTo writes them
	Strs []string // the elements of a string tensor
}

// Type returns the literal's type.
func (l *Literal) Type() TensorType { return l.T }

// Raw returns the packed bytes.
func (l *Literal) Raw() []byte { return l.Data }

// WriteTo writes the packed bytes.
func (l *Literal) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(l.Data)
	return int64(n), err
}

// NewStr makes a string scalar.
func NewStr(s string) *Literal { return &Literal{T: T(String), Strs: []string{s}} }

// NewBools makes a bool tensor of the given shape.
func NewBools(shape []int, v ...bool) *Literal {
	b := make([]byte, len(v))
	for i, x := range v {
		if x {
			b[i] = 1
		}
	}
	return &Literal{T: T(Bool, shape...), Data: b}
}

// NewInts makes an integer (or bool) tensor of type d. Values are truncated
// to the width of d, two's complement.
func NewInts(d DType, shape []int, v ...int) *Literal {
	bits := d.Bits()
	t := T(d, shape...)
	out := make([]byte, (len(v)*bits+7)/8)
	for i, x := range v {
		switch bits {
		case 8:
			out[i] = byte(x)
		case 16:
			binary.LittleEndian.PutUint16(out[2*i:], uint16(x))
		case 32:
			binary.LittleEndian.PutUint32(out[4*i:], uint32(x))
		case 64:
			binary.LittleEndian.PutUint64(out[8*i:], uint64(x))
		default:
			putBits(out, i*bits, bits, uint(x))
		}
	}
	return &Literal{T: t, Data: out}
}

// NewFloats makes a floating point tensor of type fp16, fp32 or fp64, rounding
// to nearest even.
func NewFloats(d DType, shape []int, v ...float64) *Literal {
	out := make([]byte, len(v)*d.Bits()/8)
	for i, x := range v {
		switch d {
		case Float16:
			binary.LittleEndian.PutUint16(out[2*i:], float16.Fromfloat32(float32(x)).Bits())
		case Float64:
			binary.LittleEndian.PutUint64(out[8*i:], math.Float64bits(x))
		default:
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(x)))
		}
	}
	return &Literal{T: T(d, shape...), Data: out}
}

func putBits(dst []byte, at, n int, x uint) {
	for k := range n {
		if x>>k&1 == 1 {
			dst[(at+k)/8] |= 1 << ((at + k) % 8)
		}
	}
}

func getBits(src []byte, at, n int) uint {
	var x uint
	for k := range n {
		x |= uint(src[(at+k)/8]>>((at+k)%8)&1) << k
	}
	return x
}

// ConstInts decodes an integer or bool constant.
func ConstInts(c Const) ([]int, error) {
	t := c.Type()
	if !t.DType.IsInt() && t.DType != Bool {
		return nil, fmt.Errorf("mil: constant is %v, want integers", t)
	}
	b, err := ConstBytes(c)
	if err != nil {
		return nil, err
	}
	n, bits := t.NumElements(), t.DType.Bits()
	if int64(len(b)) < t.NumBytes() {
		return nil, fmt.Errorf("mil: constant %v has %d bytes, want %d", t, len(b), t.NumBytes())
	}
	out := make([]int, n)
	for i := range out {
		var u uint
		switch bits {
		case 8:
			u = uint(b[i])
		case 16:
			u = uint(binary.LittleEndian.Uint16(b[2*i:]))
		case 32:
			u = uint(binary.LittleEndian.Uint32(b[4*i:]))
		case 64:
			u = uint(binary.LittleEndian.Uint64(b[8*i:]))
		default:
			u = getBits(b, i*bits, bits)
		}
		if t.DType.IsSigned() {
			sh := 64 - bits
			out[i] = int(u) << sh >> sh
		} else {
			out[i] = int(u)
		}
	}
	return out, nil
}

// ConstFloats decodes an fp16, fp32 or fp64 constant; integers are widened.
func ConstFloats(c Const) ([]float64, error) {
	t := c.Type()
	if !t.DType.IsFloat() {
		v, err := ConstInts(c)
		if err != nil {
			return nil, err
		}
		out := make([]float64, len(v))
		for i, x := range v {
			out[i] = float64(x)
		}
		return out, nil
	}
	b, err := ConstBytes(c)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) < t.NumBytes() {
		return nil, fmt.Errorf("mil: constant %v has %d bytes, want %d", t, len(b), t.NumBytes())
	}
	out := make([]float64, t.NumElements())
	for i := range out {
		switch t.DType {
		case Float16:
			out[i] = float64(float16.Frombits(binary.LittleEndian.Uint16(b[2*i:])).Float32())
		case Float32:
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		case BFloat16:
			out[i] = float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16))
		case Float64:
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		default:
			return nil, fmt.Errorf("mil: %v constants cannot be evaluated", t.DType)
		}
	}
	return out, nil
}

// ConstString returns a string scalar.
func ConstString(c Const) (string, error) {
	if l, ok := c.(*Literal); ok && l.T.DType == String && len(l.Strs) == 1 {
		return l.Strs[0], nil
	}
	return "", fmt.Errorf("mil: constant is %v, want a string", c.Type())
}
