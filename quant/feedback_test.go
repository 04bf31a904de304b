package quant

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
)

// correlated is a Hessian of inputs that share a few directions, with some loud
// columns.
func correlated(cols, samples int) []float64 {
	r := rand.New(rand.NewPCG(3, 4))
	h := make([]float64, cols*cols)
	mix := make([]float64, cols*8)
	for i := range mix {
		mix[i] = r.NormFloat64()
	}
	x := make([]float64, cols)
	for range samples {
		var z [8]float64
		for i := range z {
			z[i] = r.NormFloat64()
		}
		for i := range x {
			x[i] = 0.3 * r.NormFloat64()
			for j, v := range z {
				x[i] += v * mix[i*8+j]
			}
			if i%29 == 3 {
				x[i] *= 10
			}
		}
		for i := range x {
			for j := range i + 1 {
				h[i*cols+j] += x[i] * x[j]
			}
		}
	}
	return h
}

// quadratic is tr(E·H·Eᵀ), damping included, straight from the Hessian.
func quadratic(h []float64, cols int, damping float64, w, decoded []float32) (sum float64) {
	var mean float64
	for i := range cols {
		mean += h[i*cols+i] / float64(cols)
	}
	for at := 0; at < len(w); at += cols {
		for i := range cols {
			e := float64(w[at+i]) - float64(decoded[at+i])
			sum += damping * mean * e * e
			for j := range cols {
				sum += e * h[max(i, j)*cols+min(i, j)] * (float64(w[at+j]) - float64(decoded[at+j]))
			}
		}
	}
	return sum
}

func weights(t *testing.T, rows, cols int) []float32 {
	w, err := checkpoint.ReadAll(gaussian(rows, cols))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func grid(step float32) func(int, []float32) {
	return func(_ int, t []float32) {
		for i, x := range t {
			t[i] = float32(math.RoundToEven(float64(x/step))) * step
		}
	}
}

// TestFeedback: the factored loss is the Hessian's, rounding with feedback makes
// it smaller, and the codes do not depend on cores or on rows that run together.
func TestFeedback(t *testing.T) {
	const cols, rows = 192, 48
	h := correlated(cols, 600)
	w := weights(t, rows, cols)
	for _, group := range []int{0, 64, 32} {
		f, err := NewFeedback(h, cols, group, 0.01)
		if err != nil {
			t.Fatal(err)
		}
		if f.Damping() != 0.01 {
			t.Errorf("damping became %g", f.Damping())
		}
		seen := slices.Clone(f.Order())
		slices.Sort(seen)
		for i, c := range seen {
			if int(c) != i {
				t.Fatalf("order %v is no permutation", f.Order())
			}
		}
		const step = 0.25
		plain, fed := slices.Clone(w), slices.Clone(w)
		grid(step)(0, plain)
		f.Round(fed, grid(step))
		want, got := quadratic(h, cols, 0.01, w, plain), f.Loss(w, plain)
		if math.Abs(got-want) > 1e-4*want {
			t.Errorf("group %d: loss %g, want %g", group, got, want)
		}
		after := quadratic(h, cols, 0.01, w, fed)
		t.Logf("group %d: rounding %.4g, with feedback %.4g", group, want, after)
		if after > want/3 {
			t.Errorf("group %d: feedback brings the loss from %g to %g only", group, want, after)
		}
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
		again, err := NewFeedback(h, cols, group, 0.01)
		if err != nil {
			t.Fatal(err)
		}
		part := slices.Clone(w[:5*cols])
		again.Round(part, grid(step))
		if !slices.Equal(part, fed[:5*cols]) {
			t.Errorf("group %d: five rows alone have other codes", group)
		}
	}
}

// TestFeedbackHessians: columns that never saw an input, and a Hessian of fewer
// samples than columns.
func TestFeedbackHessians(t *testing.T) {
	const cols = 64
	h := correlated(cols, 5)
	for i := range cols {
		h[i*cols+7], h[7*cols+i] = 0, 0
	}
	f, err := NewFeedback(h, cols, 0, 0.01)
	if err != nil {
		t.Fatal(err)
	}
	w := weights(t, 3, cols)
	fed := slices.Clone(w)
	f.Round(fed, grid(0.25))
	for i, x := range fed {
		if x-x != 0 || math.Abs(float64(x-w[i])) > 4 {
			t.Fatalf("weight %d became %g from %g", i, x, w[i])
		}
	}
	if f.Importance()[7] != 0 || f.Order()[cols-1] != 7 {
		t.Error("the column without inputs is not last")
	}
	for name, bad := range map[string][]float64{"zero": make([]float64, 16), "negative": {15: -1}, "small": {1}, "NaN": {15: math.NaN()}} {
		if _, err := NewFeedback(bad, 4, 0, 0.01); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := NewFeedback(h, cols, 0, 0); err == nil {
		t.Error("no damping: no error")
	}
}

// TestAffineFeedback: at every width the error in the norm of the Hessian is far
// below RTN's and below that of an importance alone; statistics say the truth.
func TestAffineFeedback(t *testing.T) {
	const cols, rows = 256, 80
	h := correlated(cols, 2000)
	w := gaussian(rows, cols)
	plain := weights(t, rows, cols)
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			a := Affine{bits, group, RoundCPU}
			f, err := NewFeedback(h, cols, group, 0.01)
			if err != nil {
				t.Fatal(err)
			}
			loss := func(o Options) (float64, Stats) {
				e, parts := encodeAll(t, a, w, o)
				back := make([]float32, rows*cols)
				a.DecodeFloat32(back, parts, checkpoint.BF16)
				return quadratic(h, cols, 0.01, plain, back), e.Stats
			}
			rtn, _ := loss(Options{})
			diag, _ := loss(Options{Method: Refit, Importance: f.Importance()})
			fed, st := loss(Options{Method: ErrorFeedback, Feedback: f})
			t.Logf("%s: RTN %.4g, importance %.3f, feedback %.3f, %d rows fell back", a, rtn, diag/rtn, fed/rtn, st.Fallbacks)
			if fed > 0.6*diag || fed > 0.5*rtn {
				t.Errorf("%s: loss %g, with importance %g, RTN %g", a, fed, diag, rtn)
			}
			if math.Abs(st.OutputError-fed) > 1e-3*fed || math.Abs(st.OutputRTN-rtn) > 1e-3*rtn {
				t.Errorf("%s: statistics say %g and %g, the parts %g and %g", a, st.OutputError, st.OutputRTN, fed, rtn)
			}
		}
	}
}

// TestSolve multiplies the solution by the Hessian again.
func TestSolve(t *testing.T) {
	const cols, rows = 192, 37
	h := correlated(cols, 600)
	var mean float64
	for i := range cols {
		mean += h[i*cols+i] / cols
	}
	for _, group := range []int{0, 32} {
		f, err := NewFeedback(h, cols, group, 0.01)
		if err != nil {
			t.Fatal(err)
		}
		m := weights(t, rows, cols)
		y := slices.Clone(m)
		f.Solve(y)
		for r := range rows {
			for j := range cols {
				back := 0.01 * mean * float64(y[r*cols+j])
				for i := range cols {
					back += float64(y[r*cols+i]) * h[max(i, j)*cols+min(i, j)]
				}
				if d := math.Abs(back - float64(m[r*cols+j])); d > 2e-3 {
					t.Fatalf("group %d: row %d, column %d: %g, want %g", group, r, j, back, m[r*cols+j])
				}
			}
		}
	}
}

// TestRefine: coding groups again makes the loss smaller, and what it says it is.
func TestRefine(t *testing.T) {
	const cols, rows = 128, 40
	h := correlated(cols, 400)
	w := weights(t, rows, cols)
	f, err := NewFeedback(h, cols, 32, 0.01)
	if err != nil {
		t.Fatal(err)
	}
	const step = 0.25
	decoded := slices.Clone(w)
	f.Round(decoded, grid(step))
	before := quadratic(h, cols, 0.01, w, decoded)
	f.Refine(w, decoded, func(c *Columns) {
		for r := range c.Rows {
			// Round with the group's own feedback, if that is better.
			cost := func(get func(j int) float32) (sum float64) {
				for j := range c.Index {
					var x float64
					for i := range j + 1 {
						x += float64(c.Feedback[j*c.Stride+i]) * float64(c.Targets[i*c.Rows+r]-get(i))
					}
					sum += float64(c.Pivots[j]) * x * x
				}
				return sum
			}
			next := make([]float32, len(c.Index))
			for j := range c.Index {
				x := c.Targets[j*c.Rows+r]
				for i := range j {
					x += c.Feedback[j*c.Stride+i] * (c.Targets[i*c.Rows+r] - next[i])
				}
				next[j] = float32(math.RoundToEven(float64(x/step))) * step
			}
			if cost(func(j int) float32 { return next[j] }) < cost(func(j int) float32 { return c.Decoded[j*c.Rows+r] }) {
				for j, v := range next {
					c.Decoded[j*c.Rows+r] = v
				}
			}
		}
	})
	after := quadratic(h, cols, 0.01, w, decoded)
	t.Logf("%.5g, refined %.5g", before, after)
	if !(after < before) {
		t.Errorf("refined from %g to %g", before, after)
	}
}
