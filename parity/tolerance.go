package parity

import (
	"math"

	"github.com/smelt-go/smelt/runtime"
)

// Limits that the gates apply. They are the project's bars.
const (
	// ExactRelative bounds |Δlogit| where nothing is rounded to fp16, relative
	// to max(1, max |logit|): float32 sums in another order.
	ExactRelative = 1e-3
	// MeanKL bounds the mean KL divergence of typed fp16, in nats.
	MeanKL = 1e-3
	// ConstantsKL is the same where only constants are rounded.
	ConstantsKL = 1e-4
	// ConstantsFactor is how many times the noise any logit may be off where
	// only constants are rounded. Texts of 600 tokens show 0.2 to 0.6, and now
	// and then more than 1 in one of their hundred million logits.
	ConstantsFactor = 2
	// NoiseFactor is how many times the noise a margin must exceed before a
	// flip counts: both of the two best logits move by up to the noise.
	NoiseFactor = 2
	// DriftFactor is how many times the noise any logit may be off in typed
	// fp16. Noise is the largest error of one fp16 run of the model; another
	// order of roundings gives errors of the same size, not the same errors.
	DriftFactor = 4
	// EstimatedDriftFactor is the same where the noise is an estimate, which
	// models have been seen to exceed by three quarters.
	EstimatedDriftFactor = 7
)

// DefaultNoise is the |Δlogit| to expect from fp16 compute where nobody
// measured it: 8 units in the last place of the largest logit,
// maxAbs·2⁻¹¹·8. Runs of small decoders in PyTorch showed 2.5 to 14.
func DefaultNoise(maxAbs float64) float64 { return 8 * maxAbs / 2048 }

// Tolerance says what a run may deviate from a recording.
type Tolerance struct {
	Margin float64 // flips count where the reference's margin is larger
	MaxAbs float64 // largest |Δlogit|
	KL     float64 // mean
	Why    string  // where the numbers come from
}

// tolerance of a run in the given mode of a bundle that computes in the given
// type (of the contract).
func (r *Recording) tolerance(compute string, mode runtime.Mode) Tolerance {
	size := math.Max(1, r.MaxAbs)
	if compute == "fp32" {
		t := Tolerance{MaxAbs: ExactRelative*size + r.Resolution, KL: MeanKL, Why: "fp32 arithmetic: 1e-3 of the largest logit"}
		t.Margin = ExactRelative / 10 * size
		return t
	}
	noise, drift, why := r.Noise, float64(DriftFactor), "noise of fp16 compute as recorded"
	if math.IsNaN(noise) {
		noise, drift, why = DefaultNoise(size), EstimatedDriftFactor, "noise of fp16 compute estimated from the size of the logits"
	}
	t := Tolerance{Margin: NoiseFactor * noise, MaxAbs: drift*noise + r.Resolution, KL: MeanKL, Why: why}
	if mode == runtime.FP32 {
		t.MaxAbs, t.KL = ConstantsFactor*noise+r.Resolution, ConstantsKL
		t.Why = "fp16 constants only; " + why
	}
	return t
}
