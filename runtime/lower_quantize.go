package runtime

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/mil"
)

var quantizeLowerers = map[string]lowerer{
	"quantize":   lowerQuantize,
	"dequantize": lowerDequantize,
}

// scaling walks scale and zero_point beside the elements of input: both are
// scalars, or vectors along one axis.
type scaling struct {
	in, scale, zero int
	axis            *int
}

func (l *lowering) scaling(op *mil.Op) (*scaling, error) {
	in, err := l.operands(op, "input", "scale", "zero_point")
	if err != nil {
		return nil, err
	}
	c, err := l.known(op, "axis")
	if err != nil {
		return nil, err
	}
	s := &scaling{in: in[0], scale: in[1], zero: in[2]}
	if c.Has("axis") {
		a := c.Int("axis", 0)
		s.axis = &a
	}
	return s, nil
}

// each calls body for every run of elements [lo, hi) of input that share a
// scale and a zero point.
func (s *scaling) each(f *frame, body func(lo, hi int, scale, zero float32)) error {
	in, scale, zero := f.t[s.in], f.t[s.scale], f.optional(s.zero)
	inner, channels := in.Len(), 1
	if len(scale.Shape) > 0 {
		if s.axis == nil {
			return fmt.Errorf("scale is %v, want a scalar where there is no axis", scale)
		}
		axis, err := mil.Axis(*s.axis, len(in.Shape))
		if err != nil {
			return err
		}
		_, channels, inner = axisSplit(in.Shape, axis)
	}
	if err := wantLen("scale", scale, channels); err != nil {
		return err
	}
	if err := wantLen("zero_point", zero, channels); err != nil {
		return err
	}
	if inner == 0 {
		return nil
	}
	f.par(in.Len()/inner, 1+4096/inner, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			z := float32(0)
			if zero != nil {
				z = float32(zero.I[r%channels])
			}
			body(r*inner, (r+1)*inner, scale.F[r%channels], z)
		}
	})
	return nil
}

func lowerQuantize(l *lowering, op *mil.Op) (instr, error) {
	s, err := l.scaling(op)
	if err != nil {
		return instr{}, err
	}
	c, err := l.known(op, "output_dtype")
	if err != nil {
		return instr{}, err
	}
	d, err := mil.ParseDType(c.Str("output_dtype", ""))
	if err != nil {
		return instr{}, err
	}
	least, most := -128.0, 127.0
	if d == mil.UInt8 {
		least, most = 0, 255
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		in := f.t[s.in]
		out := f.out(o, d, in.Shape...)
		return s.each(f, func(lo, hi int, scale, zero float32) {
			for i := lo; i < hi; i++ {
				q := math.RoundToEven(float64(in.F[i]/scale)) + float64(zero)
				out.I[i] = truncate64(min(max(q, least), most))
			}
		})
	}}, nil
}

func lowerDequantize(l *lowering, op *mil.Op) (instr, error) {
	s, err := l.scaling(op)
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{alias: -1, run: func(f *frame) error {
		in := f.t[s.in]
		out := f.out(o, f.t[s.scale].DType, in.Shape...)
		return s.each(f, func(lo, hi int, scale, zero float32) {
			for i := lo; i < hi; i++ {
				out.F[i] = (float32(in.I[i]) - zero) * scale
			}
		})
	}}, nil
}
