package quant

import (
	"bytes"
	"math"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
)

// TestFloatMethods: in the bytes of the format's rule, refit has less error and
// feedback costs less in the norm of the Hessian; no row costs more.
func TestFloatMethods(t *testing.T) {
	const cols, rows, damping = 128, 50, 0.01
	h := correlated(cols, 600)
	w := weights(t, rows, cols)
	copy(w[3*cols:4*cols], make([]float32, cols)) // a row of zeros
	for i := range w {
		w[i] = round(w[i], checkpoint.BF16)
	}
	for _, mode := range []string{"mxfp4", "mxfp8", "nvfp4"} {
		c, err := NewFloat(mode)
		if err != nil {
			t.Fatal(err)
		}
		f, err := NewFeedback(h, cols, c.Group(), damping)
		if err != nil {
			t.Fatal(err)
		}
		encode := func(w []float32, m Method) (parts [][]byte, back []float32, st Stats) {
			list, err := c.Parts(checkpoint.BF16, []int{len(w) / cols, cols})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				parts = append(parts, make([]byte, p.Bytes()))
			}
			if err := c.encodeMeasured(parts, Rows{W: w, Cols: cols, DType: checkpoint.BF16, Feedback: f}, m, &st); err != nil {
				t.Fatal(err)
			}
			back = make([]float32, len(w))
			c.Decode(back, parts, cols, checkpoint.BF16)
			var e float64
			for i, x := range w {
				e += math.Pow(float64(x-back[i]), 2)
			}
			if math.Abs(e-st.Error) > 1e-6*e {
				t.Errorf("%s: %s: counted an error of %g, is %g", mode, m, st.Error, e)
			}
			return parts, back, st
		}
		_, plain, before := encode(w, RTN)
		_, _, refit := encode(w, Refit)
		if limit := map[string]float64{"mxfp4": .95, "mxfp8": 1, "nvfp4": .9}[mode]; refit.Error > limit*before.Error {
			t.Errorf("%s: refit has an error of %g, rtn of %g", mode, refit.Error, before.Error)
		}
		parts, fed, st := encode(w, Best)
		rtn, got := quadratic(h, cols, damping, w, plain), quadratic(h, cols, damping, w, fed)
		if math.Abs(st.OutputError-got) > 1e-3*got || math.Abs(st.OutputRTN-rtn) > 1e-3*rtn {
			t.Errorf("%s: counted %g of %g, is %g of %g", mode, st.OutputError, st.OutputRTN, got, rtn)
		}
		if got > 0.1*rtn {
			t.Errorf("%s: feedback brings %g to %g only", mode, rtn, got)
		}
		for r := range rows {
			a, b := quadratic(h, cols, damping, slice(w, r, cols), slice(fed, r, cols)), quadratic(h, cols, damping, slice(w, r, cols), slice(plain, r, cols))
			if a > b*(1+1e-4) {
				t.Errorf("%s: row %d costs %g, with rtn %g", mode, r, a, b)
			}
		}
		some, _, _ := encode(w[:33*cols], Best)
		for i, p := range some {
			if !bytes.Equal(p, parts[i][:len(p)]) {
				t.Errorf("%s: part %d depends on rows coded together", mode, i)
			}
		}
	}
}
