package quant

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/bitpack"
)

// On normal weights refit takes at least so much off the error of the peers'
// rule, at the same size.
func TestRefitGain(t *testing.T) {
	w := gaussian(64, 512)
	for bits, want := range map[int]float64{2: .25, 3: .20, 4: .15, 5: .10, 6: .08, 8: .25} {
		for _, group := range []int{32, 64, 128} {
			a := Affine{bits, group, RoundCPU}
			x, rtn := encodeAll(t, a, w, Options{})
			y, refit := encodeAll(t, a, w, Options{Method: Refit})
			for i := range rtn {
				if len(rtn[i]) != len(refit[i]) {
					t.Fatalf("%s: part %d has %d bytes, %d with refit", a, i, len(rtn[i]), len(refit[i]))
				}
			}
			gain := 1 - y.Stats.RelativeMSE()/x.Stats.RelativeMSE()
			t.Logf("%s: %.3e → %.3e, %.1f %%", a, x.Stats.RelativeMSE(), y.Stats.RelativeMSE(), 100*gain)
			if group == 64 && gain < want {
				t.Errorf("%s: refit takes %.1f %% off the error, want %.0f", a, 100*gain, 100*want)
			}
		}
	}
}

// No group ends worse than with the peers' rule, whatever is in it; codes are
// those the parts decode from; an importance shifts the error.
func TestRefitNeverWorse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bits := rapid.SampledFrom([]int{2, 3, 4, 5, 6, 8}).Draw(rt, "bits")
		dt := rapid.SampledFrom([]checkpoint.DType{checkpoint.BF16, checkpoint.F16, checkpoint.F32}).Draw(rt, "dtype")
		v := rapid.OneOf(rapid.Float32Range(-4, 4), rapid.Float32Range(-1e-6, 1e-6), rapid.Just(float32(0)), rapid.Just(float32(1.5)))
		w := make([]float32, 32)
		for i := range w {
			w[i] = round(v.Draw(rt, "w"), dt)
		}
		var imp []float32
		if rapid.Bool().Draw(rt, "weighted") {
			imp = make([]float32, len(w))
			for i := range imp {
				imp[i] = rapid.Float32Range(0.01, 10).Draw(rt, "d")
			}
		}
		a := Affine{bits, 32, RoundCPU}
		size := dt.Bits() / 8
		var e [2]float64
		for i, m := range []Method{RTN, Refit} {
			dst := [][]byte{make([]byte, 4*bits), make([]byte, size), make([]byte, size)}
			if err := a.Encode(dst, Rows{W: w, Cols: 32, DType: dt, Importance: imp}, m); err != nil {
				rt.Fatal(err)
			}
			codes := make([]byte, 32)
			bitpack.Unpack(codes, dst[0], bits)
			for j := range w {
				d := float64(w[j]) - float64(float32(float32(codes[j])*element(dst[1], 0, dt))+element(dst[2], 0, dt))
				if imp != nil {
					d *= d * float64(imp[j])
				} else {
					d *= d
				}
				e[i] += d
			}
		}
		if e[1] > e[0]*(1+1e-9)+1e-18 {
			rt.Fatalf("refit has error %g, rtn %g", e[1], e[0])
		}
	})
}

// Bytes do not depend on workers or blocks of rows.
func TestEncodeIsDeterministic(t *testing.T) {
	const cols = 512
	w := gaussian(300, cols)
	for _, m := range Methods {
		var f *Feedback
		if m.Calibrated() {
			var err error
			if f, err = NewFeedback(correlated(cols, 100), cols, 128, 0.01); err != nil {
				t.Fatal(err)
			}
		}
		var first [][]byte
		for _, workers := range []int{1, 2, 7} {
			_, parts := encodeAll(t, Affine{3, 128, RoundCPU}, w, Options{Workers: workers, Method: m, Feedback: f})
			if first == nil {
				first = parts
			}
			for i := range parts {
				if !bytes.Equal(parts[i], first[i]) {
					t.Errorf("%s with %d workers: part %d differs", m, workers, i)
				}
			}
		}
	}
}

func TestPacking(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bits := rapid.IntRange(2, 8).Draw(rt, "bits")
		codes := rapid.SliceOfN(rapid.ByteRange(0, byte(1<<bits-1)), 64, 64).Draw(rt, "codes")
		dst := make([]byte, 8*bits)
		bitpack.Pack(dst, codes, bits)
		for i, c := range codes {
			for k := range bits {
				at := i*bits + k
				if dst[at/8]>>(at%8)&1 != c>>k&1 {
					rt.Fatalf("bit %d of code %d is wrong", k, i)
				}
			}
		}
		back := make([]byte, 64)
		bitpack.Unpack(back, dst, bits)
		if !bytes.Equal(back, codes) {
			rt.Fatalf("unpacked %v, want %v", back, codes)
		}
	})
}

func TestEncodeErrors(t *testing.T) {
	nan := make([]float32, 128)
	nan[70] = float32(math.NaN())
	inf := make([]float32, 128)
	inf[3] = float32(math.Inf(-1))
	for name, tt := range map[string]struct {
		w    checkpoint.Tensor
		want string
	}{
		"NaN":      {checkpoint.NewFloat32("a.weight", []int{2, 64}, nan), `quant: tensor "a.weight": element 70 is NaN (the checkpoint is damaged, or training diverged)`},
		"infinity": {checkpoint.NewFloat32("a.weight", []int{2, 64}, inf), `quant: tensor "a.weight": element 3 is infinite (the checkpoint is damaged, or training diverged)`},
		"vector":   {checkpoint.NewFloat32("n", []int{64}, make([]float32, 64)), `quant: tensor "n": affine 4-bit g64: shape is [64], want a matrix or a stack of matrices`},
		"columns":  {checkpoint.NewFloat32("n", []int{2, 65}, make([]float32, 130)), `quant: tensor "n": affine 4-bit g64: the last dimension is 65, which groups of 64 do not divide (choose another group size, or keep such weights: keep_indivisible)`},
		"integers": {checkpoint.NewInt32("n", []int{1, 64}, make([]int32, 64)), `quant: tensor "n": affine 4-bit g64: dtype is I32, want BF16, F16 or F32`},
	} {
		e, err := Encode(Affine{4, 64, RoundCPU}, tt.w, "m", Options{})
		if err == nil {
			_, err = e.Parts[0].WriteTo(new(bytes.Buffer))
		}
		if fmt.Sprint(err) != tt.want {
			t.Errorf("%s: error %v, want %s", name, err, tt.want)
		}
	}
}

// Metal's rule by hand: a group of negative weights is coded over a range that
// reaches to zero, and halves are rounded away from zero.
func TestMetalRounding(t *testing.T) {
	w := make([]float32, 32)
	for i := range w {
		w[i] = -15 + float32(i%8)
	}
	w[1] = -14.5
	for r, want := range map[Rounding][2]float32{RoundMetal: {1, -15}, RoundCPU: {float32(-15) / -32, -15}} {
		a := Affine{4, 32, r}
		s, b := a.minmax(w)
		if s != want[0] || b != want[1] {
			t.Errorf("%s: scale %g, bias %g, want %v", r, s, b, want)
		}
	}
	codes := make([]byte, 32)
	Affine{4, 32, RoundMetal}.code(codes, w, 1, -15)
	if codes[1] != 1 || codes[2] != 2 {
		t.Errorf("codes %v", codes[:3])
	}
	Affine{4, 32, RoundCPU}.code(codes, w, 1, -15)
	if codes[1] != 0 {
		t.Errorf("a half is coded as %d on the CPU, want 0", codes[1])
	}
}
