package calibration

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/tokenizer"
)

func random(rows, cols int, seed uint64) decoder.Matrix {
	r := rand.New(rand.NewPCG(seed, 5))
	m := decoder.NewMatrix(rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

// TestHessian against plain sums, over more than one block, and on other cores.
func TestHessian(t *testing.T) {
	const cols = 70
	x := random(blockTokens+300, cols, 1)
	h, diagonal := NewHessian(cols, false), NewHessian(cols, true)
	h.Add(x)
	diagonal.Add(x)
	for i := range cols {
		for j := range i + 1 {
			var want float64
			for r := range x.Rows {
				want += float64(x.Row(r)[i]) * float64(x.Row(r)[j])
			}
			if d := math.Abs(h.Sum[i*cols+j] - want); d > 1e-2 {
				t.Fatalf("element %d,%d is %g, want %g", i, j, h.Sum[i*cols+j], want)
			}
			if i == j && (math.Abs(diagonal.Diagonal[i]-want) > 1e-2 || h.Diagonal[i] != h.Sum[i*cols+i]) {
				t.Fatalf("diagonal %d is %g and %g, want %g", i, diagonal.Diagonal[i], h.Diagonal[i], want)
			}
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	again := NewHessian(cols, false)
	again.Add(x)
	if !slices.Equal(again.Sum, h.Sum) {
		t.Error("other sums on three cores")
	}
}

// TestDrift: both ways to W·Σ(x − x̂)·x̂ᵀ.
func TestDrift(t *testing.T) {
	const cols, rows = 64, 20
	x, full := random(blockTokens+100, cols, 1), random(blockTokens+100, cols, 2)
	w := random(rows, cols, 3)
	want := make([]float64, rows*cols)
	for n := range x.Rows {
		for r := range rows {
			var y float64
			for c, v := range w.Row(r) {
				y += float64(v) * (float64(full.Row(n)[c]) - float64(x.Row(n)[c]))
			}
			for c, v := range x.Row(n) {
				want[r*cols+c] += y * float64(v)
			}
		}
	}
	for _, alone := range []bool{false, true} {
		d := drifted{full: &full, x: x}
		got := d.product(w.Data, cols, alone)
		if (d.sum == nil) != alone {
			t.Errorf("alone %v: the other way was taken", alone)
		}
		for i, v := range got {
			if math.Abs(float64(v)-want[i]) > 0.1 {
				t.Fatalf("alone %v: element %d is %g, want %g", alone, i, v, want[i])
			}
		}
	}
}

func TestTexts(t *testing.T) {
	for name, tt := range map[string]struct {
		data string
		want []Text
		err  string
	}{
		"plain":        {"\ufeffHello\nworld", []Text{{Text: "Hello\nworld"}}, ""},
		"a brace":      {"{ not JSON\n", []Text{{Text: "{ not JSON\n"}}, ""},
		"lines":        {"{\"domain\":\"a\",\"text\":\"x\"}\n\n{\"text\":\"y\"}\n", []Text{{"a", "x"}, {"", "y"}}, ""},
		"empty":        {" \n", nil, "is empty"},
		"not UTF-8":    {"a\xff", nil, "is not UTF-8"},
		"unknown key":  {"{\"text\":\"x\"}\n{\"body\":\"y\"}", nil, "line 2"},
		"without text": {"{\"domain\":\"a\"}", nil, "line 1 has no text"},
	} {
		got, err := ParseTexts([]byte(tt.data))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", name, err, tt.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := ReadTexts(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there: no error")
	}
}

func load(t *testing.T, name string) (string, *decoder.Decoder) {
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := decoder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return dir, d
}

// TestWindows: domains take turns; every window begins like a text.
func TestWindows(t *testing.T) {
	dir, _ := load(t, "tiny-gemma3-target")
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	prefix, err := tok.Encode("", tokenizer.EncodeOptions{AddSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	texts := []Text{{"a", strings.Repeat("one two three. ", 40)}, {"b", strings.Repeat("0123456789 ", 8)}, {"a", strings.Repeat("more of it. ", 40)}}
	w, err := Windows(tok, texts, 24, 7)
	if err != nil {
		t.Fatal(err)
	}
	if len(w) != 7 {
		t.Fatalf("%d windows, want 7", len(w))
	}
	for i, ids := range w {
		if len(ids) != 24 || !slices.Equal(ids[:len(prefix)], prefix) {
			t.Errorf("window %d is %v", i, ids)
		}
	}
	first, err := tok.Encode(texts[1].Text, tokenizer.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w[1][len(prefix):], first[:24-len(prefix)]) {
		t.Error("the second window is not of the second domain")
	}
	if _, err := Windows(tok, []Text{{"", "short"}}, 24, 7); err == nil || !strings.Contains(err.Error(), "tokens, a window takes") {
		t.Errorf("a short text: %v", err)
	}
	if _, err := Windows(tok, texts, 1, 7); err == nil && len(prefix) > 0 {
		t.Error("no room: no error")
	}
}

// coarse decodes a matrix on a grid, as a quantizer would.
func coarse(m *Module) (checkpoint.Tensor, error) {
	w, err := checkpoint.ReadAll(m.Weight)
	if err != nil {
		return nil, err
	}
	for i, x := range w {
		w[i] = float32(math.Round(float64(x)*16)) / 16
	}
	return checkpoint.NewFloat32(m.Path, m.Weight.Shape(), w), nil
}

// TestRun: every module comes once, in order, with the Hessian of its input; a
// sequential run corrects, and what the model behind it computes is closer to the
// original. A run that goes on where another stopped sees what that would have.
func TestRun(t *testing.T) {
	for _, name := range []string{"gemma3", "qwen2", "llama-tied", "gemma4-e2b", "gemma4-e4b"} {
		t.Run(name, func(t *testing.T) {
			_, d := load(t, name)
			c := d.Config()
			r := rand.New(rand.NewPCG(8, 9))
			windows := make([][]int32, 6)
			for i := range windows {
				for range 48 {
					windows[i] = append(windows[i], int32(r.IntN(c.Vocab)))
				}
			}
			full := func(string) Want { return Want{What: Full} }
			type seen struct {
				path string
				diag []float64
				w    []float32
			}
			run := func(o Options) (all []seen, decoded map[string]checkpoint.Tensor, err error) {
				decoded = map[string]checkpoint.Tensor{}
				inner := o.Quantize
				o.Wants = full
				o.Quantize = func(ctx context.Context, m *Module) (checkpoint.Tensor, error) {
					w, err := checkpoint.ReadAll(m.Weight)
					if err != nil {
						return nil, err
					}
					if m.Corrected != (o.Sequential && o.Correction > 0 && m.Layer >= 0) {
						t.Errorf("%s: corrected %v", m.Path, m.Corrected)
					}
					if inner != nil {
						if _, err := inner(ctx, m); err != nil {
							return nil, err
						}
					}
					all = append(all, seen{m.Path, m.Hessian.Diagonal, w})
					decoded[m.Path], err = coarse(m)
					return decoded[m.Path], err
				}
				err = Run(t.Context(), d, windows, o)
				return all, decoded, err
			}
			var want []string
			for i := range c.Layers {
				want = append(want, d.Modules(i)...)
			}
			static, _, err := run(Options{})
			if err != nil {
				t.Fatal(err)
			}
			paths := func(all []seen) (out []string) {
				for _, s := range all {
					out = append(out, s.path)
				}
				return out
			}
			if got := paths(static); !slices.Equal(got, append(slices.Clone(want), d.Head())) {
				t.Errorf("static: modules %v", got)
			}
			orderly := append(slices.Clone(want), d.Head())
			if c.TiedHead {
				orderly = append([]string{d.Head()}, want...)
			}
			half, decoded, err := run(Options{Sequential: true, Correction: 0.5})
			if err != nil {
				t.Fatal(err)
			}
			if got := paths(half); !slices.Equal(got, orderly) {
				t.Errorf("sequential: modules %v", got)
			}

			// Stopped in the middle, and resumed.
			stop := errors.New("stopped")
			n := 0
			_, part, err := run(Options{Sequential: true, Correction: 0.5, Quantize: func(context.Context, *Module) (checkpoint.Tensor, error) {
				if n++; n > len(orderly)/2 {
					return nil, stop
				}
				return nil, nil
			}})
			if !errors.Is(err, stop) {
				t.Fatalf("error %v", err)
			}
			rest, _, err := run(Options{Sequential: true, Correction: 0.5, Have: func(path string) (checkpoint.Tensor, bool) {
				x, ok := part[path]
				return x, ok
			}})
			if err != nil {
				t.Fatal(err)
			}
			if len(rest) != len(half)-len(part) {
				t.Errorf("resumed: %d modules, want %d", len(rest), len(half)-len(part))
			}
			for i, s := range rest {
				h := half[len(half)-len(rest)+i]
				if s.path != h.path || !slices.Equal(s.diag, h.diag) || !slices.Equal(s.w, h.w) {
					t.Fatalf("resumed: module %s differs", s.path)
				}
			}

			// What is behind the modules, against the original.
			distance := func(decoded map[string]checkpoint.Tensor) (sum float64) {
				a, err := d.Embed(t.Context(), windows, nil)
				if err != nil {
					t.Fatal(err)
				}
				with := func(path string) (checkpoint.Tensor, error) { return decoded[path], nil }
				b, err := d.Embed(t.Context(), windows, with)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Layers(t.Context(), a, decoder.Options{}); err != nil {
					t.Fatal(err)
				}
				if err := d.Layers(t.Context(), b, decoder.Options{Weights: with}); err != nil {
					t.Fatal(err)
				}
				for i, x := range a.Hidden.Data {
					sum += float64(x-b.Hidden.Data[i]) * float64(x-b.Hidden.Data[i])
				}
				return sum
			}
			_, plain, err := run(Options{Sequential: true})
			if err != nil {
				t.Fatal(err)
			}
			without, with := distance(plain), distance(decoded)
			t.Logf("distance %.4g, half corrected %.4g", without, with)
			if !(with < 0.97*without) {
				t.Errorf("the correction brings the distance from %g to %g", without, with)
			}
		})
	}
}
