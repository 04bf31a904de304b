package models

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"testing"
)

var thetas = []float64{100, 1e4, 5e4, 1e5, 250000, 5e5, 1e6, 5e6, 1e7, 8e6 + 1}

// exactPower is θ^(num/den) for den a power of two, by square roots.
func exactPower(theta float64, num, den int) float32 {
	out := new(big.Float).SetPrec(200).SetInt64(1)
	root := new(big.Float).SetPrec(200).SetFloat64(theta)
	for ; den > 1; den /= 2 {
		root.Sqrt(root)
	}
	for range num {
		out.Mul(out, root)
	}
	f, _ := out.Float32()
	return f
}

// Frequencies are those of powers rounded once, for usual sizes of heads.
func TestInvFreqIsExactlyRounded(t *testing.T) {
	for _, theta := range thetas {
		for _, dim := range []int{2, 16, 32, 64, 128, 256, 512} {
			for i, got := range (Rope{Type: "default", Theta: theta, Dim: dim}).InvFreq() {
				if want := 1 / exactPower(theta, 2*i, dim); got != want {
					t.Errorf("theta %v, %d of %d: %v, want %v", theta, i, dim, got, want)
				}
			}
		}
	}
}

// The bits of frequencies are the same on every processor: these.
func TestInvFreqBits(t *testing.T) {
	h := fnv.New64a()
	for _, theta := range thetas {
		for _, dim := range []int{2, 6, 48, 64, 80, 96, 112, 128, 160, 192, 256, 512} {
			for _, r := range []Rope{
				{Type: "default"},
				{Type: "linear", Factor: 8},
				{Type: "linear", Factor: 2.7},
				{Type: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMax: 8192},
				{Type: "llama3", Factor: 8.3, LowFreqFactor: 1.1, HighFreqFactor: 4.7, OriginalMax: 1000},
				{Type: "proportional", Factor: 1, Rotated: max(1, dim/8)},
			} {
				r.Theta, r.Dim = theta, dim
				if err := r.check(dim); err != nil {
					t.Fatal(err)
				}
				for _, f := range r.InvFreq() {
					fmt.Fprintf(h, "%x,", math.Float32bits(f))
				}
			}
		}
	}
	if got, want := h.Sum64(), uint64(0x8b3377e6f8c478cd); got != want {
		t.Errorf("hash of all frequencies is %#x, want %#x", got, want)
	}
}
