package sensitivity

import (
	"math"
	"testing"

	"github.com/smelt-go/smelt/quant"
)

// Around a base of a calibrated method, every candidate stands where the base's own
// stands, the base does what all its tensors do together, and the settled map adds
// up to it.
func TestCalibratedBase(t *testing.T) {
	m := openModel(t, "tiny-gemma3-target")
	o := options(m)
	o.Probe = false
	o.Formats = nil
	for _, b := range []int{3, 4, 6} {
		f := affine(b, 32)
		f.Method = quant.Best
		o.Formats = append(o.Formats, f)
	}
	o.Coding = Coding{Windows: texts(m, 6, 64), Correction: 0.5}
	o.Base = quant.Uniform(4, 32)
	o.Base.Default.Method = quant.Best
	o.Estimator = Scaled
	o.Probed = func(f quant.Format) bool { return f.Bits == 3 }
	got, err := Measure(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	joint, _, err := Joint(t.Context(), m, o.Base, o.Coding, o.Sequences)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(got.BaseDamage-joint) > 3e-6+0.02*joint {
		t.Errorf("the base does %g, jointly measured %g", got.BaseDamage, joint)
	}
	rises := 0
	for _, x := range got.Tensors {
		if c := x.Candidates[1]; c.Damage != got.BaseDamage || c.Estimated {
			t.Errorf("%s at the base's own format does %g, the base %g", x.Path, c.Damage, got.BaseDamage)
		}
		if x.Candidates[0].Damage > got.BaseDamage {
			rises++
		}
		if a, b := x.Candidates[0], x.Candidates[2]; a.Estimated || !b.Estimated || !(x.error(&a) > x.error(&b)) {
			t.Errorf("%s: %+v, %+v", x.Path, a, b)
		}
	}
	if 3*rises < 2*len(got.Tensors) {
		t.Errorf("3 bits for 4 do more damage in %d of %d tensors only", rises, len(got.Tensors))
	}
	settled, alone, err := Settle(got, o.Base)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := settled.Predict(o.Base)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(sum-got.BaseDamage) > 1e-9 || !(alone > 0) {
		t.Errorf("settled: %g in all, of %g; alone %g", sum, got.BaseDamage, alone)
	}
	if c, d := settled.Tensors[3].Candidates[0], got.Tensors[3].Candidates[0]; c.Measured == nil || *c.Measured != d.Damage {
		t.Errorf("what was measured is not kept: %+v, %+v", c, d)
	}
	for _, x := range settled.Tensors {
		if !(x.Candidates[0].Damage >= x.Candidates[1].Damage && x.Candidates[1].Damage >= x.Candidates[2].Damage) {
			t.Errorf("%s: %+v", x.Path, x.Candidates)
		}
	}
	if _, _, err := Settle(settled, quant.Uniform(4, 128)); err == nil {
		t.Error("settled around another recipe")
	}
}

// A slope is found in spite of noise, and figures of a class hold each other.
func TestSlope(t *testing.T) {
	x := Tensor{Candidates: []Measurement{
		{Format: affine(3, 64), Damage: 0.1 + 0.05, StandardError: 0.001, WeightError: 0.06},
		{Format: affine(4, 64), Damage: 0.1, WeightError: 0.01},
		{Format: affine(5, 64), Damage: 0.1 - 0.0075, StandardError: 0.001, WeightError: 0.0025},
	}}
	all := func(*Measurement) bool { return true }
	got, se, ok := x.slope(0.1, &x.Candidates[1], all)
	if !ok || math.Abs(got-1) > 1e-9 || !(se > 0 && se < 0.15) {
		t.Errorf("slope %g ± %g, want 1", got, se)
	}
	if _, _, ok := x.slope(0.1, &x.Candidates[1], func(*Measurement) bool { return false }); ok {
		t.Error("a slope of nothing")
	}
}
