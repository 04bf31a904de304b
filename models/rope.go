package models

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/internal/elementary"
)

// Rope gives the rotary position embedding of one kind of layer.
type Rope struct {
	Type   string  `json:"type"`   // "default", "linear", "llama3", "proportional"
	Theta  float64 `json:"theta"`  // base
	Dim    int     `json:"dim"`    // rotated dimensions: head_dim
	Factor float64 `json:"factor"` // divides frequencies: linear, llama3, proportional
	// Rotated is the number of pairs that proportional RoPE rotates; the
	// frequencies of the others are zero.
	Rotated int `json:"rotated_pairs,omitempty"`
	// Llama 3.1's three bands.
	LowFreqFactor  float64 `json:"low_freq_factor,omitempty"`
	HighFreqFactor float64 `json:"high_freq_factor,omitempty"`
	OriginalMax    int     `json:"original_max_positions,omitempty"`
}

func (r Rope) check(headDim int) error {
	if r.Theta <= 0 {
		return fmt.Errorf("rope_theta is %g, want a positive number", r.Theta)
	}
	if r.Dim != headDim {
		return fmt.Errorf("RoPE rotates %d of %d dimensions; partial rotation is not supported for this architecture", r.Dim, headDim)
	}
	switch r.Type {
	case "default":
	case "linear":
		if r.Factor <= 0 {
			return fmt.Errorf("rope_scaling factor is %g, want a positive number", r.Factor)
		}
	case "llama3":
		if r.Factor <= 0 || r.LowFreqFactor <= 0 || r.HighFreqFactor <= r.LowFreqFactor || r.OriginalMax <= 0 {
			return fmt.Errorf("rope_scaling llama3 needs factor, low_freq_factor < high_freq_factor and original_max_position_embeddings")
		}
	case "proportional":
		if r.Factor <= 0 || r.Rotated < 1 || 2*r.Rotated > r.Dim {
			return fmt.Errorf("rope type proportional: factor %g, %d rotated pairs of %d", r.Factor, r.Rotated, r.Dim/2)
		}
	default:
		return fmt.Errorf("rope type %q is not supported (known: default, linear, llama3, proportional)", r.Type)
	}
	return nil
}

// InvFreq returns the Dim/2 inverse frequencies, in radians per position, in
// float32 step by step as PyTorch computes them: θ^(-2i/Dim), then scaled.
//
// linear divides all of them by Factor. llama3 (Llama 3.1) divides those with
// a wavelength above OriginalMax/LowFreqFactor, keeps those below
// OriginalMax/HighFreqFactor and interpolates between. proportional (Gemma 4)
// keeps the first Rotated frequencies and zeroes the rest: those dimensions
// are not rotated.
//
// They have the same bits on every processor.
func (r Rope) InvFreq() []float32 {
	out := make([]float32, r.Dim/2)
	for i := range out {
		f := 1 / float32(elementary.Pow(r.Theta, float64(float32(2*i)/float32(r.Dim))))
		switch r.Type {
		case "linear":
			f /= float32(r.Factor)
		case "llama3":
			f = r.llama3(f)
		case "proportional":
			if f /= float32(r.Factor); i >= r.Rotated {
				f = 0
			}
		}
		out[i] = f
	}
	return out
}

func (r Rope) llama3(f float32) float32 {
	slow := f / float32(r.Factor)
	wavelen := float32(2*math.Pi) / f
	switch {
	case wavelen > float32(float64(r.OriginalMax)/r.LowFreqFactor):
		return slow
	case wavelen < float32(float64(r.OriginalMax)/r.HighFreqFactor):
		return f
	}
	smooth := (float32(r.OriginalMax)/wavelen - float32(r.LowFreqFactor)) / float32(r.HighFreqFactor-r.LowFreqFactor)
	return float32((1-smooth)*f/float32(r.Factor)) + float32(smooth*f)
}
