package speculate_test

import (
	"testing"

	"github.com/smelt-go/smelt/speculate"
)

// Texts that part are tied by how near the two tokens were, seen from the size of
// the logit.
func TestDriftTie(t *testing.T) {
	for _, c := range []struct {
		first, second float32
		fp32, fp16    bool
	}{
		{20, 20 - 4e-5, true, true},
		{20, 20 - 0.05, false, true},
		{20, 19.9, false, false},
		{0.5, 0.5 - 1e-6, true, true},
		{0.5, 0.5 - 1e-3, false, true},
	} {
		serial := &speculate.Stream{Output: []int32{7, 0}, Logits: [][]float32{nil, {c.first, c.second}}}
		d := speculate.NewDrift(serial, []int32{7, 1})
		if d.First != 1 || d.Margin == nil {
			t.Fatalf("first flip at %d, margin %v", d.First, d.Margin)
		}
		if got := d.Tie(serial, speculate.FP32Ties); got != c.fp32 {
			t.Errorf("%g over %g is a tie in fp32: %v", c.first, c.second, got)
		}
		if got := d.Tie(serial, speculate.FP16Ties); got != c.fp16 {
			t.Errorf("%g over %g is a tie in fp16: %v", c.first, c.second, got)
		}
		if d.Tie(serial, 0) {
			t.Errorf("%g over %g is a tie of nothing", c.first, c.second)
		}
	}
}
