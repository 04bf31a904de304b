package decoder

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity/reference"
)

type fixture struct {
	name string
	d    *Decoder
	m    *reference.Model
	ids  []int32
}

func open(t testing.TB, name string) fixture {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{name: name}
	if f.d, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.d.Close() })
	if f.m, err = reference.Open(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.m.Close() })
	g, err := checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	x, ok := g.Tensor("input_ids")
	if !ok {
		t.Fatal("golden has no input_ids")
	}
	ids, err := checkpoint.ReadInts(x)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		f.ids = append(f.ids, int32(id))
	}
	return f
}

func names() []string { return slices.Concat(fixtures.Names(), fixtures.Gemma4()) }

func maxAbs(x []float32) (peak float64) {
	for _, v := range x {
		peak = max(peak, math.Abs(float64(v)))
	}
	return peak
}

func maxDiff(a, b []float32) (peak float64) {
	for i := range a {
		if d := math.Abs(float64(a[i]) - float64(b[i])); !(d <= peak) {
			peak = d
		}
	}
	return peak
}

// TestReference: two sequences of different lengths, run together, give after
// every layer what the reference gives for each by itself.
func TestReference(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			f := open(t, name)
			sequences := [][]int32{f.ids, f.ids[3 : len(f.ids)/2]}
			s, err := f.d.Embed(t.Context(), sequences, nil)
			if err != nil {
				t.Fatal(err)
			}
			var want []*reference.Result
			for _, ids := range sequences {
				r, err := f.m.Forward(t.Context(), ids, reference.Options{Head: true})
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, r)
			}
			check := func(what string, got Matrix, of func(r *reference.Result) *reference.Matrix) {
				t.Helper()
				at := 0
				for i, r := range want {
					w := of(r)
					n := w.Rows * w.Cols
					if d := maxDiff(got.Data[at:at+n], w.Data); !(d <= 2e-5*max(1, maxAbs(w.Data))) {
						t.Errorf("%s, sequence %d: max |Δ| %g of %g", what, i, d, maxAbs(w.Data))
					}
					at += n
				}
			}
			check("embed", s.Hidden, func(r *reference.Result) *reference.Matrix { return r.Hidden[0] })
			for i := range f.d.Config().Layers {
				if err := f.d.Layer(t.Context(), s, Options{}); err != nil {
					t.Fatal(err)
				}
				check("layer", s.Hidden, func(r *reference.Result) *reference.Matrix { return r.Hidden[i+1] })
			}
			x, err := f.d.Norm(s)
			if err != nil {
				t.Fatal(err)
			}
			check("norm", x, func(r *reference.Result) *reference.Matrix { return r.Norm })
			h, err := f.d.NewHead(nil)
			if err != nil {
				t.Fatal(err)
			}
			logits := NewMatrix(x.Rows, f.d.Config().Vocab)
			err = h.Logits(t.Context(), x, func(row, first int, l []float32) error {
				copy(logits.Row(row)[first:], l)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			check("logits", logits, func(r *reference.Result) *reference.Matrix { return r.Logits })
		})
	}
}

// TestCores: the bits do not depend on cores or on what runs together.
func TestCores(t *testing.T) {
	for _, name := range []string{"gemma4-e2b", "qwen2"} {
		f := open(t, name)
		run := func(cores int, sequences ...[]int32) []float32 {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
			s, err := f.d.Embed(t.Context(), sequences, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.d.Layers(t.Context(), s, Options{}); err != nil {
				t.Fatal(err)
			}
			return s.Hidden.Data
		}
		one := run(1, f.ids)
		if !slices.Equal(one, run(5, f.ids)) {
			t.Errorf("%s: another result on five cores", name)
		}
		if two := run(2, f.ids[:7], f.ids); !slices.Equal(one, two[7*f.d.Config().Hidden:]) {
			t.Errorf("%s: another result beside another sequence", name)
		}
	}
}

// TestTapAndWeights: taps see all linear modules in order with their inputs, and
// a replaced matrix is what runs.
func TestTapAndWeights(t *testing.T) {
	for _, name := range []string{"qwen3", "gemma4-e2b"} {
		f := open(t, name)
		s, err := f.d.Embed(t.Context(), [][]int32{f.ids}, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := s.Clone()
		var seen []string
		asked := map[string]bool{}
		err = f.d.Layer(t.Context(), s, Options{
			Tap: func(in Input) error {
				for _, m := range in.Modules {
					if asked[m] {
						t.Errorf("%s: %s was read before its input was shown", name, m)
					}
					w, _ := f.d.Source().Tensor(m + ".weight")
					if in.X.Rows != len(f.ids) || in.X.Cols != w.Shape()[1] {
						t.Errorf("%s: input of %s is %d × %d", name, m, in.X.Rows, in.X.Cols)
					}
				}
				seen = append(seen, in.Modules...)
				return nil
			},
			Weights: func(m string) (checkpoint.Tensor, error) { asked[m] = true; return nil, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := f.d.Modules(0); !slices.Equal(seen, want) || len(seen) < 7 {
			t.Errorf("%s: tapped %v, want %v", name, seen, want)
		}
		// With o_proj and down_proj gone, and Gemma 4's own input, a layer adds
		// nothing.
		zero := func(m string) (checkpoint.Tensor, error) {
			switch filepath.Ext(m) {
			case ".o_proj", ".down_proj", ".per_layer_projection":
				w, _ := f.d.Source().Tensor(m + ".weight")
				return checkpoint.NewFloat32(m, w.Shape(), make([]float32, checkpoint.NumElements(w))), nil
			}
			return nil, nil
		}
		still := before.Clone()
		if err := f.d.Layer(t.Context(), still, Options{Weights: zero}); err != nil {
			t.Fatal(err)
		}
		if f.d.Config().LayerScalar {
			w, _ := f.d.Source().Tensor("model.layers.0.layer_scalar")
			v, _ := checkpoint.ReadAll(w)
			for i := range before.Hidden.Data {
				before.Hidden.Data[i] *= v[0]
			}
		}
		if d := maxDiff(still.Hidden.Data, before.Hidden.Data); d != 0 {
			t.Errorf("%s: a layer without outputs changed the stream by %g", name, d)
		}
	}
}

// TestCompare against sums in float64.
func TestCompare(t *testing.T) {
	f := open(t, "gemma3")
	c := f.d.Config()
	s, err := f.d.Embed(t.Context(), [][]int32{f.ids}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.d.Layers(t.Context(), s, Options{}); err != nil {
		t.Fatal(err)
	}
	ref, err := f.d.Norm(s)
	if err != nil {
		t.Fatal(err)
	}
	x := ref.Clone()
	for i := range x.Data {
		x.Data[i] += 0.2 * float32(math.Sin(float64(i)))
	}
	h, err := f.d.NewHead(nil)
	if err != nil {
		t.Fatal(err)
	}
	next := append(slices.Clone(f.ids[1:]), 0)
	got, err := Compare(t.Context(), h, x, h, ref, next)
	if err != nil {
		t.Fatal(err)
	}
	all := func(x Matrix) Matrix {
		m := NewMatrix(x.Rows, c.Vocab)
		if err := h.Logits(t.Context(), x, func(row, first int, l []float32) error { copy(m.Row(row)[first:], l); return nil }); err != nil {
			t.Fatal(err)
		}
		return m
	}
	lp, lq := all(ref), all(x)
	logSum := func(row []float32) float64 {
		var s float64
		for _, v := range row {
			s += math.Exp(float64(v))
		}
		return math.Log(s)
	}
	var sum float64
	for i, g := range got {
		p, q := lp.Row(i), lq.Row(i)
		zp, zq := logSum(p), logSum(q)
		var kl float64
		bestP, bestQ := 0, 0
		for j := range p {
			kl += math.Exp(float64(p[j])-zp) * (float64(p[j]) - zp - float64(q[j]) + zq)
			if p[j] > p[bestP] {
				bestP = j
			}
			if q[j] > q[bestQ] {
				bestQ = j
			}
		}
		sum += kl
		nll := zq - float64(q[next[i]])
		if math.Abs(g.KL-kl) > 3e-6 || math.Abs(g.NLL-nll) > 1e-5 || g.Same != (bestP == bestQ) {
			t.Errorf("row %d: %+v, want KL %g, NLL %g, same %v", i, g, kl, nll, bestP == bestQ)
		}
	}
	if sum < 1e-3*float64(len(got)) {
		t.Errorf("mean KL %g: nothing was compared", sum/float64(len(got)))
	}
}

func TestRefuses(t *testing.T) {
	f := open(t, "qwen3")
	for name, ids := range map[string][][]int32{
		"no tokens": {}, "empty": {{1}, {}}, "beyond": {{1, int32(f.d.Config().Vocab)}}, "negative": {{-1}},
	} {
		if _, err := f.d.Embed(t.Context(), ids, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s, err := f.d.Embed(t.Context(), [][]int32{f.ids}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(m string) (checkpoint.Tensor, error) {
		return checkpoint.NewFloat32(m, []int{1, 2}, make([]float32, 2)), nil
	}
	if err := f.d.Layer(t.Context(), s, Options{Weights: wrong}); err == nil {
		t.Error("a matrix of another shape: no error")
	}
	bad := func(m string) (checkpoint.Tensor, error) {
		w, _ := f.d.Source().Tensor(m + ".weight")
		v, _ := checkpoint.ReadAll(w)
		v[5] = float32(math.NaN())
		return checkpoint.NewFloat32(m, w.Shape(), v), nil
	}
	if s, err = f.d.Embed(t.Context(), [][]int32{f.ids}, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.d.Layer(t.Context(), s, Options{Weights: bad}); err == nil {
		t.Error("NaN in a matrix: no error")
	}
}

// BenchmarkLayers runs a real checkpoint, named by SMELT_MODEL, over windows of
// 512 tokens.
func BenchmarkLayers(b *testing.B) {
	dir := os.Getenv("SMELT_MODEL")
	if dir == "" {
		b.Skip("SMELT_MODEL is not set")
	}
	d, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	var sequences [][]int32
	for i := range 8 {
		ids := make([]int32, 512)
		for j := range ids {
			ids[j] = int32((i*7919 + j*104729) % 40000)
		}
		sequences = append(sequences, ids)
	}
	for b.Loop() {
		s, err := d.Embed(b.Context(), sequences, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Layers(b.Context(), s, Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(sequences)*512*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// TestJoin: states that run on together compute what they compute alone.
func TestJoin(t *testing.T) {
	for _, name := range []string{"gemma4-e2b", "gemma3"} {
		f := open(t, name)
		start := func(ids []int32) *State {
			s, err := f.d.Embed(t.Context(), [][]int32{ids, ids[:3]}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for s.Layer < f.d.Config().Layers-1 {
				if err := f.d.Layer(t.Context(), s, Options{}); err != nil {
					t.Fatal(err)
				}
			}
			return s
		}
		a, b := start(f.ids), start(f.ids[2:])
		both, err := Join(a, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*State{a, b, both} {
			if err := f.d.Layers(t.Context(), s, Options{}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(both.Hidden.Data, slices.Concat(a.Hidden.Data, b.Hidden.Data)) {
			t.Errorf("%s: another result together", name)
		}
		if _, err := Join(a, start(f.ids)); err == nil {
			t.Errorf("%s: joined states at different layers", name)
		}
	}
}
