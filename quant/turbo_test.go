package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
)

// TestTurboLevels: every level is the mean of a normal variable where it is
// nearest, and the errors are those of the literature.
func TestTurboLevels(t *testing.T) {
	density := func(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }
	tail := func(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
	want := []float64{1: .363380, 2: .117482, 3: .034548, 4: .0095010, 5: .00250467, 6: 6.4424e-4, 7: 1.6348e-4, 8: 4.1185e-5}
	for bits := 1; bits <= 8; bits++ {
		l := turboLevels[bits]
		if len(l) != 1<<(bits-1) {
			t.Fatalf("%d bits: %d levels", bits, len(l))
		}
		d, from := 1.0, 0.0
		for i, x := range l {
			mass, moment := tail(from), density(from)
			if i+1 < len(l) {
				from = (float64(x) + float64(l[i+1])) / 2
				mass, moment = mass-tail(from), moment-density(from)
			}
			if m := moment / mass; math.Abs(m-float64(x)) > 2e-6*m {
				t.Errorf("%d bits: level %d is %g, the mean %g", bits, i, x, m)
			}
			d -= 2 * mass * float64(x) * float64(x)
		}
		if math.Abs(d-want[bits]) > 1e-4*want[bits]+1e-9 {
			t.Errorf("%d bits: error %g, want %g", bits, d, want[bits])
		}
	}
}

func TestHadamard(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8, 64} {
		for j := range n {
			x := make([]float32, 3*n) // three runs
			x[n+j] = 1
			Hadamard(x, n)
			for i, v := range x {
				want := 0.0
				if i/n == 1 {
					want = 1 / math.Sqrt(float64(n))
					for b := (i - n) & j; b != 0; b &= b - 1 {
						want = -want
					}
				}
				if math.Abs(float64(v)-want) > 1e-6 {
					t.Fatalf("order %d, column %d, row %d: %g, want %g", n, j, i, v, want)
				}
			}
		}
	}
}

// TestTurbo: the error of codes is near that of the table, whatever the
// distribution of weights; decoding is exact about it.
func TestTurbo(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	const rows, cols = 16, 640
	heavy := make([]float32, rows*cols)
	for i := range heavy {
		heavy[i] = float32(rng.NormFloat64() * math.Exp(rng.NormFloat64()))
	}
	limit := []float64{1: .39, 2: .13, 3: .037, 4: .0105, 5: .0029, 6: 8e-4, 7: 2.2e-4, 8: 6e-5}
	for bits := 1; bits <= 8; bits++ {
		for _, group := range []int{0, 32, 128} {
			c, err := NewTurbo(bits, group)
			if err != nil {
				t.Fatal(err)
			}
			parts, err := c.Parts(checkpoint.F32, []int{rows, cols})
			if err != nil {
				t.Fatal(err)
			}
			size, err := Bytes(c, checkpoint.F32, []int{rows, cols})
			if err != nil || size != parts[0].Bytes()+parts[1].Bytes() {
				t.Fatalf("%v: %d bytes, %v", c, size, err)
			}
			dst := [][]byte{make([]byte, parts[0].Bytes()), make([]byte, parts[1].Bytes())}
			if err := c.Encode(dst, Rows{W: heavy, Cols: cols, DType: checkpoint.F32}, RTN); err != nil {
				t.Fatal(err)
			}
			back := make([]float32, len(heavy))
			c.Decode(back, dst, cols, checkpoint.F32)
			var e, energy float64
			for i, x := range heavy {
				e += math.Pow(float64(x)-float64(back[i]), 2)
				energy += float64(x) * float64(x)
			}
			if e/energy > limit[bits] {
				t.Errorf("%v: relative error %g, want at most %g", c, e/energy, limit[bits])
			}
			// Decoded rows are coded as they are.
			again := [][]byte{make([]byte, len(dst[0])), make([]byte, len(dst[1]))}
			if err := c.Encode(again, Rows{W: back, Cols: cols, DType: checkpoint.F32}, RTN); err != nil {
				t.Fatal(err)
			}
			twice := make([]float32, len(heavy))
			c.Decode(twice, again, cols, checkpoint.F32)
			var drift float64
			for i, x := range back {
				drift += math.Pow(float64(x)-float64(twice[i]), 2)
			}
			if drift > 0.1*e {
				t.Errorf("%v: coding what was decoded adds %g to an error of %g", c, drift, e)
			}
		}
	}
	for _, shape := range [][]int{{4, 8}, {4, 636}, {640}} {
		if _, err := (Turbo{4, 0}).Parts(checkpoint.BF16, shape); err == nil {
			t.Errorf("shape %v was accepted", shape)
		}
	}
	if _, err := NewTurbo(9, 0); err == nil {
		t.Error("9 bits were accepted")
	}
	// Rows of zeros decode to zeros.
	c := Turbo{3, 32}
	dst := [][]byte{make([]byte, 64*3/8), make([]byte, 4)}
	if err := c.Encode(dst, Rows{W: make([]float32, 64), Cols: 64}, RTN); err != nil {
		t.Fatal(err)
	}
	zeros := []float32{1, 2}
	zeros = append(zeros, make([]float32, 62)...)
	c.Decode(zeros, dst, 64, checkpoint.F32)
	for i, x := range zeros {
		if x != 0 {
			t.Fatalf("element %d of a row of zeros is %g", i, x)
		}
	}
}
