package reference

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func random(r *rand.Rand, rows, cols int) *Matrix {
	m := NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

func TestDotIsCloseToFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 3, 4, 5, 255, 256, 257, 511, 512, 2048, 4099} {
		a, b := random(r, 1, n).Data, random(r, 1, n).Data
		var want, size float64
		for i := range a {
			want += float64(a[i]) * float64(b[i])
			size += math.Abs(float64(a[i]) * float64(b[i]))
		}
		for name, dot := range map[string]dotFunc{"fast": fastDot, "exact": exactDot} {
			if got := dot(a, b); math.Abs(got-want) > 1e-6*size {
				t.Errorf("%s, n=%d: %v, want %v", name, n, got, want)
			}
		}
	}
}

func TestLinear(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	x, w := random(r, 35, 300), random(r, 41, 300)
	bias := random(r, 1, 41).Data
	y := NewMatrix(35, 41)
	linear(y, x, w, bias, fastDot)
	for i := range y.Rows {
		for o := range y.Cols {
			want := float64(bias[o])
			for k := range x.Cols {
				want += float64(x.Row(i)[k]) * float64(w.Row(o)[k])
			}
			if got := float64(y.Row(i)[o]); math.Abs(got-want) > 1e-4 {
				t.Fatalf("[%d %d]: %v, want %v", i, o, got, want)
			}
		}
	}
}

// TestAttentionSoftcap computes capped, windowed attention by definition.
func TestAttentionSoftcap(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	h := heads{query: 4, kv: 2, dim: 6, scale: 0.7, softcap: 1.5}
	const T = 19
	q, k, v := random(r, T, 24), random(r, T, 12), random(r, T, 12)
	for _, window := range []int{0, 3} {
		out := NewMatrix(T, 24)
		h.span = causal(window)
		attention(out, q, k, v, h, fastDot)
		for i := range T {
			for head := range h.query {
				var total float64
				want := make([]float64, h.dim)
				for j := range T {
					if j > i || window > 0 && i-j >= window {
						continue
					}
					var s float64
					for d := range h.dim {
						s += float64(q.Row(i)[head*6+d]) * float64(k.Row(j)[head/2*6+d])
					}
					p := math.Exp(1.5 * math.Tanh(s*0.7/1.5))
					total += p
					for d := range want {
						want[d] += p * float64(v.Row(j)[head/2*6+d])
					}
				}
				for d := range want {
					if got := float64(out.Row(i)[head*6+d]); math.Abs(got-want[d]/total) > 1e-5 {
						t.Fatalf("window %d: position %d head %d: %v, want %v", window, i, head, got, want[d]/total)
					}
				}
			}
		}
	}
}

// TestFinalSoftcap: the head caps what it would deliver without.
func TestFinalSoftcap(t *testing.T) {
	g := loadGolden(t, "gemma3")
	m := openModel(t, g.dir)
	run := func(m *Model) *Matrix {
		r, err := m.Forward(t.Context(), g.ids, Options{Head: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.Logits
	}
	plain := run(m)
	capped := &Model{config: m.config, src: m.src}
	capped.config.FinalSoftcap = 7
	for i, got := range run(capped).Data {
		want := 7 * math.Tanh(float64(plain.Data[i])/7)
		if math.Abs(float64(got)-want) > 1e-5 {
			t.Fatalf("logit %d: %v, want %v", i, got, want)
		}
	}
}

func TestActivations(t *testing.T) {
	// Values at x = 1 from the definitions; −x checks the other branch of the
	// odd part: f(x) − f(−x) = x for every gate of the form x·cdf(x).
	at1 := map[string]float64{
		"silu": 0.7310585786300049, "swish": 0.7310585786300049,
		"gelu": 0.8413447460685429, "gelu_python": 0.8413447460685429,
		"gelu_pytorch_tanh": 0.8411919906082768, "gelu_new": 0.8411919906082768, "gelu_fast": 0.8411919906082768,
		"gelu_accurate": 0.8411919906082768, "gelu_python_tanh": 0.8411919906082768,
		"quick_gelu": 0.8457957659328212, "relu": 1, "relu2": 1,
	}
	for name, f := range activations {
		want, ok := at1[name]
		if !ok {
			t.Errorf("%s: not tested", name)
			continue
		}
		if got := f(1); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s(1) = %v, want %v", name, got, want)
		}
		if name == "relu2" {
			if f(3) != 9 || f(-3) != 0 {
				t.Errorf("relu2(±3) = %v, %v", f(3), f(-3))
			}
			continue
		}
		if got := f(2.5) - f(-2.5); math.Abs(got-2.5) > 1e-12 {
			t.Errorf("%s: f(2.5) − f(−2.5) = %v, want 2.5", name, got)
		}
	}
}

func TestRopeFrequencies(t *testing.T) {
	plain := Rope{Type: "default", Theta: 10000}.Frequencies(8)
	for i, want := range []float64{1, 0.1, 0.01, 0.001} {
		if math.Abs(float64(plain[i])-want) > 1e-6*want {
			t.Errorf("default %d: %v, want %v", i, plain[i], want)
		}
	}
	linear := Rope{Type: "linear", Theta: 10000, Factor: 4}.Frequencies(8)
	for i := range linear {
		if linear[i] != plain[i]/4 {
			t.Errorf("linear %d: %v, want %v", i, linear[i], plain[i]/4)
		}
	}
	// Wavelengths 6.28, 62.8, 628, 6283 against a context of 1000 with bands
	// at 1000/4 and 1000/1: the first two are kept, the last is divided, the
	// third blends with keep = (1000/628.3 − 1)/3.
	llama3 := Rope{Type: "llama3", Theta: 10000, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 1000}.Frequencies(8)
	keep := (1000/(2*math.Pi*100) - 1) / 3
	for i, want := range []float64{1, 0.1, 0.01*(1-keep)/8 + 0.01*keep, 0.001 / 8} {
		if math.Abs(float64(llama3[i])-want) > 1e-6*want {
			t.Errorf("llama3 %d: %v, want %v", i, llama3[i], want)
		}
	}
}

// TestProportionalRope: exponents of the whole head, a tail that stands still.
func TestProportionalRope(t *testing.T) {
	for _, tt := range []struct {
		partial float64
		turning int
	}{{0.25, 4}, {0.5, 8}, {0.7, 11}, {1, 16}, {0.03, 0}} {
		r := Rope{Type: "proportional", Theta: 1e6, Factor: 2, Partial: tt.partial}
		f := r.Frequencies(32)
		for i, got := range f {
			want := math.Pow(1e6, -2*float64(i)/32) / 2
			if i >= tt.turning {
				want = 0
			}
			if math.Abs(float64(got)-want) > 1e-6*want {
				t.Errorf("partial %v: frequency %d is %v, want %v", tt.partial, i, got, want)
			}
		}
		row := random(rand.New(rand.NewPCG(9, 10)), 1, 32).Data
		turned := append([]float32(nil), row...)
		r.table(0, 100, 32).rotate(turned, 99, 32)
		for i := range 16 {
			if moved := turned[i] != row[i] && turned[i+16] != row[i+16]; moved != (i < tt.turning) {
				t.Errorf("partial %v: pair %d turns: %v", tt.partial, i, moved)
			}
		}
	}
	// A table may begin anywhere.
	r := Rope{Type: "proportional", Theta: 1e6, Factor: 1, Partial: 0.5}
	if a, b := r.table(0, 50, 8), r.table(40, 3, 8); !slices.Equal(a.cos.Row(42), b.cos.Row(2)) || !slices.Equal(a.sin.Row(42), b.sin.Row(2)) {
		t.Error("position 42 differs by the table's first row")
	}
}

// TestRotateKeepsDistance: the product of two rotated vectors depends on the
// distance of their positions only.
func TestRotateKeepsDistance(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	table := Rope{Type: "default", Theta: 10000}.table(0, 64, 16)
	q, k := random(r, 1, 32).Data, random(r, 1, 32).Data
	product := func(pq, pk int) float64 {
		a, b := append([]float32(nil), q...), append([]float32(nil), k...)
		table.rotate(a, pq, 16)
		table.rotate(b, pk, 16)
		return fastDot(a, b)
	}
	if a, b := product(10, 3), product(61, 54); math.Abs(a-b) > 1e-4 {
		t.Errorf("distance 7 at two places: %v and %v", a, b)
	}
	if a, b := product(10, 3), product(10, 4); math.Abs(a-b) < 1e-2 {
		t.Errorf("distances 7 and 6 give the same %v", a)
	}
}

func TestMaxAbs(t *testing.T) {
	m := &Matrix{Rows: 1, Cols: 3, Data: []float32{1, -3, 2}}
	if m.MaxAbs() != 3 {
		t.Errorf("got %v, want 3", m.MaxAbs())
	}
	m.Data[0] = float32(math.NaN())
	if x := m.MaxAbs(); x == x {
		t.Errorf("got %v, want NaN", x)
	}
}
