package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
)

// TestTurboCells: the table finds the level that searching finds.
func TestTurboCells(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for bits := 1; bits <= 8; bits++ {
		c := newTurboCells(bits)
		l := turboLevels[bits]
		check := func(x float32) {
			t.Helper()
			if got, want := int(c.index(x)), nearestLevel(x, l); got != want {
				t.Fatalf("%d bits: %g is near level %d, want %d", bits, x, got, want)
			}
		}
		for i := range len(l) - 1 {
			edge := (l[i] + l[i+1]) / 2
			check(edge)
			check(math.Nextafter32(edge, 0))
			check(math.Nextafter32(edge, 9))
		}
		for range 2000 {
			check(float32(rng.ExpFloat64()))
		}
		check(0)
		check(math.MaxFloat32)
		for code := range 1 << bits {
			if v := c.value(byte(code)); int(c.code(v)) != code || c.signed(v) != v {
				t.Errorf("%d bits: code %d has value %g, which has code %d and level %g", bits, code, v, c.code(v), c.signed(v))
			}
		}
	}
}

// TestTurnedFeedback: errors cost in the turned space what they cost before, and
// least squares have the same solution.
func TestTurnedFeedback(t *testing.T) {
	const cols, rows = 160, 40
	h := correlated(cols, 600)
	w, e := weights(t, rows, cols), weights(t, rows, cols)
	for i := range e {
		e[i] = w[i] + 0.1*e[len(e)-1-i]
	}
	plain, err := NewFeedback(h, cols, 32, 0.01)
	if err != nil {
		t.Fatal(err)
	}
	turned, err := NewTurnedFeedback(h, cols, 32, 0.01)
	if err != nil {
		t.Fatal(err)
	}
	tw, te := slices.Clone(w), slices.Clone(e)
	turnRows(tw, cols)
	turnRows(te, cols)
	if a, b := plain.Loss(w, e), turned.Loss(tw, te); math.Abs(a-b) > 1e-4*a {
		t.Errorf("loss %g turned, %g before", b, a)
	}
	x, y := slices.Clone(w), slices.Clone(w)
	plain.Solve(x)
	turned.Solve(y)
	var off, size float64
	for i, v := range x {
		off += math.Pow(float64(v-y[i]), 2)
		size += math.Pow(float64(v), 2)
	}
	if off > 1e-6*size {
		t.Errorf("solutions differ by %g of %g", off, size)
	}
	turnRowsBack(tw, cols)
	for i, v := range tw {
		if math.Abs(float64(v-w[i])) > 1e-5 {
			t.Fatalf("element %d: %g after turning forth and back, want %g", i, v, w[i])
		}
	}
	if _, err := NewTurnedFeedback(make([]float64, 8*8), 8, 0, 0.01); err == nil {
		t.Error("8 columns were turned")
	}
}

// TestTurboFeedback: in the norm of the Hessian codes are much better than those
// of rtn, no row is worse, decoding gives what was counted, and bytes do not depend
// on cores or on rows that run together.
func TestTurboFeedback(t *testing.T) {
	const cols, rows, damping = 320, 70, 0.01
	h := correlated(cols, 1000)
	w := weights(t, rows, cols)
	copy(w[5*cols:6*cols], make([]float32, cols)) // a row of zeros
	for _, bits := range []int{1, 2, 3, 4, 8} {
		for _, group := range []int{0, 16, 64} {
			c := Turbo{bits, group}
			f, err := NewTurnedFeedback(h, cols, group, damping)
			if err != nil {
				t.Fatal(err)
			}
			encode := func(w []float32, m Method) (parts [][]byte, back []float32, st Stats) {
				list, err := c.Parts(checkpoint.F32, []int{len(w) / cols, cols})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range list {
					parts = append(parts, make([]byte, p.Bytes()))
				}
				if err := c.encodeMeasured(parts, Rows{W: w, Cols: cols, DType: checkpoint.F32, Feedback: f}, m, &st); err != nil {
					t.Fatal(err)
				}
				back = make([]float32, len(w))
				c.Decode(back, parts, cols, checkpoint.F32)
				return parts, back, st
			}
			_, plain, before := encode(w, RTN)
			parts, fed, st := encode(w, Best)
			rtn, got := quadratic(h, cols, damping, w, plain), quadratic(h, cols, damping, w, fed)
			if math.Abs(st.OutputError-got) > 1e-3*got || math.Abs(st.OutputRTN-rtn) > 1e-3*rtn {
				t.Errorf("%v: counted %g of %g, is %g of %g", c, st.OutputError, st.OutputRTN, got, rtn)
			}
			if got > 0.03*rtn {
				t.Errorf("%v: feedback brings %g to %g only", c, rtn, got)
			}
			for _, s := range []struct {
				st   Stats
				back []float32
			}{{before, plain}, {st, fed}} {
				var e float64
				for i, x := range w {
					e += math.Pow(float64(x-s.back[i]), 2)
				}
				if math.Abs(e-s.st.Error) > 1e-3*e {
					t.Errorf("%v: counted an error of %g, is %g", c, s.st.Error, e)
				}
			}
			for r := range rows {
				row := slice(w, r, cols)
				a, b := quadratic(h, cols, damping, row, slice(fed, r, cols)), quadratic(h, cols, damping, row, slice(plain, r, cols))
				if a > b*(1+1e-4) {
					t.Errorf("%v: row %d costs %g, with rtn %g", c, r, a, b)
				}
			}
			for i, v := range slice(fed, 5, cols) {
				if v != 0 {
					t.Fatalf("%v: element %d of a row of zeros is %g", c, i, v)
				}
			}
			some, _, _ := encode(w[:33*cols], Best)
			for i, p := range some {
				if !bytes.Equal(p, parts[i][:len(p)]) {
					t.Errorf("%v: part %d depends on rows coded together", c, i)
				}
			}
			// Data-free: no group is worse than with rtn.
			_, _, after := encode(w, Refit)
			if after.Error > before.Error {
				t.Errorf("%v: refit has an error of %g, rtn of %g", c, after.Error, before.Error)
			}
		}
	}
}

func slice(w []float32, row, cols int) []float32 { return w[row*cols : (row+1)*cols] }

// TestTurboFeedbackCores: a tensor is coded to the same bytes on any number of
// cores.
func TestTurboFeedbackCores(t *testing.T) {
	const cols, rows = 128, 300
	h := correlated(cols, 400)
	src := gaussian(rows, cols)
	var all [][]byte
	for _, cores := range []int{1, 3} {
		before := runtime.GOMAXPROCS(cores)
		f, err := NewTurnedFeedback(h, cols, 32, 0.01)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Encode(Turbo{3, 32}, src, "x", Options{Method: ErrorFeedback, Feedback: f})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		for _, p := range e.Parts {
			if _, err := p.WriteTo(&b); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, b.Bytes())
		runtime.GOMAXPROCS(before)
	}
	if d := cmp.Diff(all[0], all[1]); d != "" {
		t.Error("bytes depend on cores")
	}
	plain, err := NewFeedback(h, cols, 32, 0.01)
	if err != nil {
		t.Fatal(err)
	}
	turned, err := NewTurnedFeedback(h, cols, 32, 0.01)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		codec Codec
		f     *Feedback
	}{{Turbo{3, 32}, plain}, {Turbo{3, 16}, plain}, {Affine{4, 32, RoundCPU}, turned}} {
		e, err := Encode(c.codec, src, "x", Options{Method: ErrorFeedback, Feedback: c.f})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Parts[0].WriteTo(new(bytes.Buffer)); err == nil {
			t.Errorf("%v took a calibration that is not its own", c.codec)
		}
	}
}

func BenchmarkTurboFeedback(b *testing.B) {
	const cols, rows = 640, 256
	h := correlated(cols, 700)
	w, err := checkpoint.ReadAll(gaussian(rows, cols))
	if err != nil {
		b.Fatal(err)
	}
	for _, group := range []int{0, 32} {
		c := Turbo{4, group}
		b.Run(c.String(), func(b *testing.B) {
			f, err := NewTurnedFeedback(h, cols, group, 0.01)
			if err != nil {
				b.Fatal(err)
			}
			parts, _ := c.Parts(checkpoint.F32, []int{rows, cols})
			dst := [][]byte{make([]byte, parts[0].Bytes()), make([]byte, parts[1].Bytes())}
			b.SetBytes(4 * rows * cols)
			for b.Loop() {
				if err := c.Encode(dst, Rows{W: w, Cols: cols, Feedback: f}, Best); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
