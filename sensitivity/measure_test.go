package sensitivity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/quant"
)

func openModel(t *testing.T, name string) *Model {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func affine(bits, group int) quant.Format {
	return quant.Format{Codec: "affine", Bits: bits, GroupSize: group, Method: quant.RTN}
}

// texts are tokens that any vocabulary has.
func texts(m *Model, n, tokens int) [][]int32 {
	out := make([][]int32, n)
	for i := range out {
		for j := range tokens {
			out[i] = append(out[i], int32((i*31+j*j*7+j)%m.Decoder.Config().Vocab))
		}
	}
	return out
}

func options(m *Model) Options {
	return Options{Sequences: texts(m, 3, 10), Formats: []quant.Format{affine(3, 32), affine(8, 32)}, Probe: true,
		Calibration: Calibration{SHA256: "x", Sequences: 3, Tokens: 10, Seed: 1, Domains: map[string]int{"text": 3}}}
}

// Every figure is the divergence over the whole vocabulary of the model with that
// one tensor replaced, run by itself from the start.
func TestMeasure(t *testing.T) {
	for _, name := range []string{"tiny-gemma3-target", "qwen3", "gemma4-e2b"} {
		m := openModel(t, name)
		o := options(m)
		got, err := Measure(t.Context(), m, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Check(); err != nil {
			t.Fatal(err)
		}
		d := m.Decoder
		finish := func(d *decoder.Decoder) (decoder.Matrix, *decoder.Head) {
			s, err := d.Embed(t.Context(), o.Sequences, nil)
			if err == nil {
				err = d.Layers(t.Context(), s, decoder.Options{})
			}
			if err != nil {
				t.Fatal(err)
			}
			x, err := d.Norm(s)
			if err != nil {
				t.Fatal(err)
			}
			h, err := d.NewHead(nil)
			if err != nil {
				t.Fatal(err)
			}
			return x, h
		}
		ref, refHead := finish(d)
		least := 1.0
		for k, tensor := range got.Tensors {
			if k%5 > 1 && tensor.Layer >= 0 {
				continue // a part is enough
			}
			for _, c := range tensor.Candidates {
				w, _ := d.Source().Tensor(tensor.Path + ".weight")
				e, err := encode(t.Context(), c.Format, w)
				if err != nil {
					t.Fatal(err)
				}
				x, h := finish(d.With(decoder.Overlay(d.Source(), map[string]checkpoint.Tensor{tensor.Path + ".weight": e})))
				all, err := decoder.Compare(t.Context(), h, x, refHead, ref, nil)
				if err != nil {
					t.Fatal(err)
				}
				var want float64
				for _, v := range all {
					want += v.KL / float64(len(all))
				}
				if math.Abs(c.Damage-want) > 3e-6+0.02*want {
					t.Errorf("%s: %s %s: damage %g, want %g", name, tensor.Path, Name(c.Format), c.Damage, want)
				}
				if e.bytes != c.Bytes {
					t.Errorf("%s: %s: %d bytes, encoded to %d", tensor.Path, Name(c.Format), c.Bytes, e.bytes)
				}
				least = min(least, c.Damage)
			}
			if a, b := tensor.Candidates[0], tensor.Candidates[1]; a.Damage < b.Damage && a.Damage > 1e-6 {
				t.Errorf("%s: 3 bits do %g, 8 bits %g", tensor.Path, a.Damage, b.Damage)
			}
		}
		if !(least >= 0 && least < 1e-3) {
			t.Errorf("%s: least damage %g", name, least)
		}
	}
}

// The bits do not depend on cores, on what runs together or on parts.
func TestShardsAndCores(t *testing.T) {
	m := openModel(t, "qwen3")
	whole, err := Measure(t.Context(), m, options(m))
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	for _, n := range []int{1, 2, 4, 7} {
		var parts []*Map
		for i := range n {
			o := options(m)
			o.Shard = &Shard{i + 1, n}
			o.BatchTokens = 40 * n
			p, err := Measure(t.Context(), m, o)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Tensors) == 0 {
				t.Errorf("part %d of %d is empty", i+1, n)
			}
			again, err := Parse(p.Marshal())
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, again)
		}
		slices.Reverse(parts)
		got, err := Merge(parts...)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Marshal(), whole.Marshal()) {
			t.Errorf("%d parts differ from one run", n)
		}
		if n > 1 {
			if _, err := Merge(parts[1:]...); err == nil {
				t.Errorf("%d parts: merged without one", n)
			}
			if _, err := Merge(append(parts, parts[0])...); err == nil {
				t.Errorf("%d parts: merged with one twice", n)
			}
			if _, _, err := func() (*Problem, *Map, error) { p, err := parts[0].Problem(ProblemOptions{}); return p, nil, err }(); err == nil {
				t.Error("a part is taken for a map")
			}
		}
	}
}

// A run that ended anywhere goes on to the same bytes, also with a line half
// written.
func TestResume(t *testing.T) {
	m := openModel(t, "qwen3")
	whole, err := Measure(t.Context(), m, options(m))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "map.json.partial")
	o := options(m)
	o.Journal = path
	for stop := 1; ; stop++ {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		o.Progress = func(string, int64, int64) {
			if n++; n == 2 {
				cancel()
			}
		}
		o.BatchTokens = 90
		got, err := Measure(ctx, m, o)
		cancel()
		if err == nil {
			if !bytes.Equal(got.Marshal(), whole.Marshal()) {
				t.Error("another map after resuming")
			}
			if stop < 3 {
				t.Errorf("ran through in %d attempts", stop)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if stop%2 == 0 {
			data = append(data, `{"path": "model.lay`...)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if stop > 200 {
			t.Fatal("no end")
		}
	}
	o.Formats = o.Formats[:1]
	o.Progress = nil
	if _, err := Measure(t.Context(), m, o); err == nil || !strings.Contains(err.Error(), "belongs to another run") {
		t.Errorf("a journal of other candidates: %v", err)
	}
}

// Around a base, damage is that of everything together.
func TestBase(t *testing.T) {
	m := openModel(t, "qwen3")
	o := options(m)
	o.Base = quant.Uniform(8, 32)
	o.Base.KeepIndivisible = true
	got, err := Measure(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	joint, _, err := Joint(t.Context(), m, o.Base, Coding{}, o.Sequences)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(got.BaseDamage-joint) > 3e-6+0.02*joint {
		t.Errorf("the base does %g, jointly measured %g", got.BaseDamage, joint)
	}
	for _, x := range got.Tensors {
		if c := x.Candidates[1]; math.Abs(c.Damage-got.BaseDamage) > 1e-9 {
			t.Errorf("%s at the base's own format does %g, the base %g", x.Path, c.Damage, got.BaseDamage)
		}
	}
}

func TestNoiseEstimator(t *testing.T) {
	m := openModel(t, "tiny-gemma3-target")
	o := options(m)
	o.Formats = []quant.Format{affine(3, 32), affine(4, 32), affine(6, 32)}
	measured, err := Measure(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Estimator = Noise
	estimated, err := Measure(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	var x, y []float64
	for i, a := range measured.Tensors {
		for j, c := range a.Candidates {
			x, y = append(x, c.Damage), append(y, estimated.Tensors[i].Candidates[j].Damage)
		}
	}
	if rho := spearman(x, y); rho < 0.8 {
		t.Errorf("rank correlation %g", rho)
	}
	if len(measured.Correlations()) != 4 || estimated.Correlations() != nil {
		t.Errorf("%v, %v", measured.Correlations(), estimated.Correlations())
	}
}

// A reduced distribution is nearly the whole one, and its divergence is never
// negative.
func TestReduce(t *testing.T) {
	const vocab = 50_000
	logits, moved := make([]float32, vocab), make([]float32, vocab)
	var worst float64
	for row := range 20 {
		for i := range logits {
			// A peak, a slope and a long tail.
			logits[i] = float32(6*math.Exp(-float64(i)/40) + math.Sin(float64(i*i%977)+float64(row)))
			moved[i] = logits[i] + 0.2*float32(math.Sin(float64(i)*1.7+float64(row)))
		}
		a := reduce(logits, row, 9)
		if len(a.ids) > 3000 || !slices.IsSorted(a.ids) {
			t.Fatalf("%d atoms", len(a.ids))
		}
		var z []float32
		for _, id := range a.ids {
			a.logit = append(a.logit, logits[id])
			z = append(z, moved[id])
		}
		whole := func(x []float32) (p []float64, log float64) {
			for _, v := range x {
				log += math.Exp(float64(v))
			}
			for _, v := range x {
				p = append(p, math.Exp(float64(v))/log)
			}
			return p, math.Log(log)
		}
		p, lp := whole(logits)
		_, lq := whole(moved)
		var want float64
		for i := range p {
			want += p[i] * (float64(logits[i]) - lp - float64(moved[i]) + lq)
		}
		got := a.kl(z)
		worst = max(worst, math.Abs(got-want)/want)
		if same := a.kl(a.logit); same != 0 {
			t.Errorf("the divergence from itself is %g", same)
		}
	}
	if worst > 0.15 {
		t.Errorf("off by %.0f %% at one position", 100*worst)
	}
}

func TestSpearman(t *testing.T) {
	if r := spearman([]float64{1, 2, 3, 4}, []float64{10, 20, 25, 100}); r != 1 {
		t.Error(r)
	}
	if r := spearman([]float64{1, 2, 2, 4}, []float64{4, 3, 2, 1}); math.Abs(r+0.9486832980505138) > 1e-12 {
		t.Error(r)
	}
}

func TestParseRefuses(t *testing.T) {
	m := openModel(t, "qwen3")
	good, err := Measure(t.Context(), m, options(m))
	if err != nil {
		t.Fatal(err)
	}
	for want, edit := range map[string]func(m *Map){
		"damage -0.5 is negative": func(m *Map) { m.Tensors[1].Candidates[0].Damage = -0.5 },
		"has no candidates":       func(m *Map) { m.Tensors[1].Candidates = nil },
		"is named twice":          func(m *Map) { m.Tensors[1].Path = m.Tensors[0].Path },
		"is listed twice":         func(m *Map) { m.Tensors[0].Candidates[1] = m.Tensors[0].Candidates[0] },
		"a map with gaps":         func(m *Map) { m.Tensors = m.Tensors[1:] },
		`the schema is "other"`:   func(m *Map) { m.Schema = "other" },
		"standard error is -1":    func(m *Map) { m.Tensors[0].Candidates[0].StandardError = -1 },
		"0 bytes":                 func(m *Map) { m.Tensors[0].Candidates[0].Bytes = 0 },
		"parameters in":           func(m *Map) { m.Tensors[0].Parameters = 0 },
	} {
		var c Map
		if err := json.Unmarshal(good.Marshal(), &c); err != nil {
			t.Fatal(err)
		}
		edit(&c)
		if _, err := Parse(c.Marshal()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	nan := bytes.Replace(good.Marshal(), []byte(`"damage": `), []byte(`"damage": NaN, "x": `), 1)
	if _, err := Parse(nan); err == nil {
		t.Error("NaN")
	}
	other := *good
	other.Source.SHA256 = "0000000000000000"
	if err := m.Belongs(&other); err == nil || !strings.Contains(fmt.Sprint(err), "measure this checkpoint") {
		t.Errorf("another checkpoint: %v", err)
	}
}

// The divergence has digits where logits hardly move, and is a number where all
// that is likely moves far down.
func TestDivergence(t *testing.T) {
	for _, c := range []struct {
		weight   []float64
		ref, z   []float32
		want     float64
		relative float64
	}{
		{[]float64{0.5, 0.5}, []float32{0, 0}, []float32{1. / 1024, 0}, 1. / (8 * 1024 * 1024), 1e-6}, // d²·w·(1−w)/2
		{[]float64{1 - 1e-12, 1e-12}, []float32{30, 0}, []float32{-90, 90}, 210 - 12*math.Ln10, 1e-9},
		{[]float64{1, 0}, []float32{0, 0}, []float32{-5, 1000}, 0, 0},
	} {
		if kl, _, _ := divergence(c.weight, c.ref, c.z); !(math.Abs(kl-c.want) <= c.relative*c.want) {
			t.Errorf("%v → %v with %v: %g, want %g", c.ref, c.z, c.weight, kl, c.want)
		}
	}
}
