package pass

import (
	"fmt"
	"io"
	"math"

	"github.com/smelt-go/smelt/mil"
)

// FP16Max is the largest finite fp16 magnitude.
const FP16Max = 65504

// A CastConst is a lazy floating point constant: Src times Factor, rounded
// once to To (nearest even). It holds no data; every WriteTo streams Src
// through a buffer of fixed size. Src may be fp16, bf16, fp32 or fp64. If parts
// of Src can be read, so can parts of the CastConst.
//
// WriteTo and what Ranges returns fail on a NaN, on an infinity and on a result beyond To's finite
// range, naming the constant and the element.
type CastConst struct {
	Src    mil.Const
	To     mil.DType // Float16 or Float32
	Factor float32   // a power of two
	Name   string    // for error messages
}

// Type is the source's shape with element type To.
func (c *CastConst) Type() mil.TensorType {
	return mil.TensorType{DType: c.To, Shape: c.Src.Type().Shape}
}

// Key identifies the contents without reading them: two CastConsts of one
// source with the same factor and target are equal.
func (c *CastConst) Key() any {
	return castKey{keyOf(c.Src), c.To, c.Factor}
}

type castKey struct {
	src    any
	to     mil.DType
	factor float32
}

// WriteTo streams the converted elements.
func (c *CastConst) WriteTo(w io.Writer) (int64, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	if read, ok := c.Ranges(); ok {
		return c.writeRanges(w, read)
	}
	cw := &castWriter{c: c, w: w}
	cw.init()
	if _, err := c.Src.WriteTo(cw); err != nil {
		return cw.written, err
	}
	return cw.written, cw.finish()
}

func (c *CastConst) check() error {
	d := c.Src.Type().DType
	if !castable(d) || c.To != mil.Float16 && c.To != mil.Float32 {
		return fmt.Errorf("pass: const %q: no conversion from %v to %v", c.Name, d, c.To)
	}
	return nil
}

// Cast converts a floating point constant lazily to fp16 or fp32. Conversions
// compose so that rounding happens once: a cast of a CastConst reads that
// one's source if its own conversion was exact.
func Cast(name string, c mil.Const, to mil.DType) (mil.Const, error) {
	t := c.Type()
	if t.DType == to {
		return c, nil
	}
	if to != mil.Float16 && to != mil.Float32 || !castable(t.DType) {
		return nil, fmt.Errorf("const %q: no conversion from %v to %v", name, t.DType, to)
	}
	if k, ok := c.(*CastConst); ok && k.To == mil.Float32 {
		return &CastConst{Src: k.Src, To: to, Factor: k.Factor, Name: k.Name}, nil
	}
	return &CastConst{Src: c, To: to, Factor: 1, Name: name}, nil
}

// Scale multiplies a floating point constant lazily by a power of two. In
// fp32, and in fp16 above the subnormal range, that is exact. The scale of a
// CastConst is applied before its rounding, not after.
func Scale(name string, c mil.Const, factor float64) (mil.Const, error) {
	if !powerOfTwo(factor) {
		return nil, fmt.Errorf("const %q: factor %v is no power of two", name, factor)
	}
	d := c.Type().DType
	if d != mil.Float16 && d != mil.Float32 {
		return nil, fmt.Errorf("const %q: a %v constant cannot be scaled", name, d)
	}
	if factor == 1 {
		return c, nil
	}
	if k, ok := c.(*CastConst); ok {
		if f := float64(k.Factor) * factor; powerOfTwo(f) {
			return &CastConst{Src: k.Src, To: k.To, Factor: float32(f), Name: k.Name}, nil
		}
	}
	return &CastConst{Src: c, To: d, Factor: float32(factor), Name: name}, nil
}

// powerOfTwo reports whether f is a positive power of two that fp32 holds
// with room on both sides.
func powerOfTwo(f float64) bool {
	frac, exp := math.Frexp(f)
	return frac == 0.5 && exp >= -60 && exp <= 60
}

func castable(d mil.DType) bool {
	return d == mil.Float16 || d == mil.BFloat16 || d == mil.Float32 || d == mil.Float64
}
