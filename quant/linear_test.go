package quant

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/internal/half"
)

func halves(v ...float32) []uint16 {
	out := make([]uint16, len(v))
	half.F32ToF16(out, v)
	return out
}

// Codes worked out by hand from the formulas.
func TestLinearByHand(t *testing.T) {
	for _, tt := range []struct {
		name   string
		l      Linear
		w      []uint16
		cols   int
		codes  []int8
		scale  []float32
		offset []int8
	}{
		{"symmetric row", Linear{Bits: 4, Granularity: PerChannel, Symmetric: true},
			halves(7, -3.4, 0, 1.5, -14, 2, 3, 0), 4, []int8{7, -3, 0, 2, -7, 1, 2, 0}, []float32{1, 2}, nil},
		{"symmetric block", Linear{Bits: 4, Granularity: PerBlock, Block: 2, Symmetric: true},
			halves(7, -7, 0, 0), 4, []int8{7, -7, 0, 0}, []float32{1, 0}, nil},
		{"asymmetric tensor", Linear{Bits: 4, Granularity: PerTensor},
			halves(0, 15, 5, 3), 2, []int8{-8, 7, -3, -5}, []float32{1}, []int8{-8}},
		{"range widened to zero", Linear{Bits: 4, Granularity: PerTensor, Unsigned: true},
			halves(15, 5), 2, []int8{15, 5}, []float32{1}, []int8{0}},
		{"symmetric unsigned", Linear{Bits: 4, Granularity: PerChannel, Unsigned: true, Symmetric: true},
			halves(7, -7, 1, 0), 4, []int8{14, 0, 8, 7}, []float32{1}, []int8{7}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, err := tt.l.Quantize(tt.w, len(tt.w)/tt.cols, tt.cols, RTN)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.codes, q.Codes); d != "" {
				t.Errorf("codes: %s", d)
			}
			if d := cmp.Diff(halves(tt.scale...), q.Scale); d != "" {
				t.Errorf("scales: %s", d)
			}
			if d := cmp.Diff(tt.offset, q.Offset); d != "" {
				t.Errorf("offsets: %s", d)
			}
		})
	}
}

// Refit is never worse, and better where there is something to gain.
func TestLinearRefit(t *testing.T) {
	w, err := gaussianHalves(64 * 128)
	if err != nil {
		t.Fatal(err)
	}
	for _, bits := range []int{4, 8} {
		for _, l := range []Linear{
			{Bits: bits, Granularity: PerChannel, Symmetric: true},
			{Bits: bits, Granularity: PerBlock, Block: 32, Symmetric: true},
			{Bits: bits, Granularity: PerBlock, Block: 32},
		} {
			t.Run(fmt.Sprint(l), func(t *testing.T) {
				a, err := l.Quantize(w, 64, 128, RTN)
				if err != nil {
					t.Fatal(err)
				}
				b, err := l.Quantize(w, 64, 128, Refit)
				if err != nil {
					t.Fatal(err)
				}
				for _, q := range []Integers{a, b} {
					if e := decodeLinear(t, q, w, l, 128); math.Abs(e-q.Stats.Error) > 1e-9*e {
						t.Errorf("the codes have error %g, reported is %g", e, q.Stats.Error)
					}
				}
				if gain := 1 - b.Stats.Error/a.Stats.Error; gain < 0.03 {
					t.Errorf("refit takes only %.1f %% off the error", 100*gain)
				}
			})
		}
	}
}

// decodeLinear measures the error of codes as Core ML decodes them.
func decodeLinear(t *testing.T, q Integers, w []uint16, l Linear, cols int) (e float64) {
	t.Helper()
	run := cols
	if l.Granularity == PerBlock {
		run = l.Block
	}
	for i, c := range q.Codes {
		v := float32(c)
		if q.Offset != nil {
			v -= float32(q.Offset[i/run])
		}
		d := float64(half.ToF32(w[i])) - float64(h(half.ToF32(q.Scale[i/run])*v))
		e += d * d
	}
	return e
}

func TestLinearErrors(t *testing.T) {
	for _, tt := range []struct {
		l    Linear
		w    []uint16
		want string
	}{
		{Linear{Bits: 3, Granularity: PerTensor}, halves(1, 2), "quant: linear has no 3-bit codes (want 4 or 8)"},
		{Linear{Bits: 4, Granularity: "row"}, halves(1, 2), `quant: granularity "row" is unknown (want tensor, channel or block)`},
		{Linear{Bits: 4, Granularity: PerBlock}, halves(1, 2), "quant: group_size is 0 with granularity block (blocks need one, others have none)"},
		{Linear{Bits: 4, Granularity: PerBlock, Block: 3}, halves(1, 2), "quant: the last dimension is 2, which blocks of 3 do not divide (choose another block, or keep the tensor)"},
		{Linear{Bits: 8, Granularity: PerChannel}, []uint16{0x7c00, 0}, "quant: block 0 has weights that are not finite"},
	} {
		if _, err := tt.l.Quantize(tt.w, 1, 2, RTN); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: error %v, want %q", tt.l, err, tt.want)
		}
	}
}
