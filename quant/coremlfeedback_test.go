package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/smelt-go/smelt/internal/half"
)

// calibrated is a matrix of fp16 weights with the Hessian of inputs that depend on
// each other.
func calibrated(rows, cols int) (w []uint16, hessian []float64) {
	rng := rand.New(rand.NewPCG(11, 12))
	w = make([]uint16, rows*cols)
	for i := range w {
		w[i] = half.FromF32(float32(rng.NormFloat64() * 0.05))
	}
	hessian = make([]float64, cols*cols)
	x, common := make([]float64, cols), make([]float64, 4)
	for range 4 * cols {
		for i := range common {
			common[i] = rng.NormFloat64()
		}
		for i := range x {
			x[i] = (rng.NormFloat64() + 2*common[i%4]) / float64(1+i%7)
		}
		for i := range cols {
			for j := range i + 1 {
				hessian[i*cols+j] += x[i] * x[j]
			}
		}
	}
	return w, hessian
}

// TestFormFeedback: with feedback, outputs lose much less than with method rtn;
// what is reported is what data decode to, and bytes do not depend on workers.
func TestFormFeedback(t *testing.T) {
	const rows, cols = 64, 96
	w, hessian := calibrated(rows, cols)
	read := func(dst []uint16, first int) error { copy(dst, w[first:]); return nil }
	for _, tt := range []struct {
		f    Format
		part float64 // of rtn's output error
	}{
		{Format{Codec: "palette", Bits: 4, GroupSize: 32}, 0.4},
		{Format{Codec: "palette", Bits: 4}, 0.4},
		{Format{Codec: "palette", Bits: 3, GroupSize: 16, Table: "int8"}, 0.5},
		{Format{Codec: "palette", Bits: 4, ChannelScale: true}, 0.5},
		{Format{Codec: "linear", Bits: 4, Granularity: "block", GroupSize: 32}, 0.4},
		{Format{Codec: "linear", Bits: 4, Granularity: "block", GroupSize: 32, Asymmetric: true, Unsigned: true}, 0.4},
		{Format{Codec: "linear", Bits: 4, Granularity: "channel"}, 0.4},
		{Format{Codec: "linear", Bits: 8, Granularity: "channel", Asymmetric: true}, 0.5},
	} {
		tt.f.Method = Best
		m, err := NewForm(tt.f, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		f, err := NewFeedback(hessian, cols, m.FeedbackGroup(), 0.01)
		if err != nil {
			t.Fatal(err)
		}
		data, s, err := m.Encode(read, FormOptions{Feedback: f, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if s.OutputError > tt.part*s.OutputRTN || s.OutputRTN == 0 || s.OutputError == 0 {
			t.Errorf("%s: output error %g, with rtn %g", tt.f.Describe(), s.OutputError, s.OutputRTN)
		}
		x, decoded := make([]float32, len(w)), make([]float32, len(w))
		half.F16ToF32(x, w)
		for r := range rows {
			if err := m.Decode(decoded[r*cols:][:cols], data, r); err != nil {
				t.Fatal(err)
			}
		}
		// A row's scale rounds once more.
		if loss := f.Loss(x, decoded); math.Abs(loss-s.OutputError) > 0.02*loss {
			t.Errorf("%s: output error %g, of what is decoded %g", tt.f.Describe(), s.OutputError, loss)
		}
		var e float64
		for i, v := range x {
			e += math.Pow(float64(v)-float64(decoded[i]), 2)
		}
		if math.Abs(e-s.Error) > 1e-6*e {
			t.Errorf("%s: error %g reported, %g decoded", tt.f.Describe(), s.Error, e)
		}
		again, _, err := m.Encode(read, FormOptions{Feedback: f, Workers: 3})
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			if string(data[i]) != string(again[i]) {
				t.Errorf("%s: constant %d depends on the number of workers", tt.f.Describe(), i)
			}
		}
		if _, _, err := m.Encode(read, FormOptions{}); err == nil {
			t.Errorf("%s: coded without a calibration", tt.f.Describe())
		}
	}
}
