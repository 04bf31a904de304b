package reference

import (
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"testing"

	"github.com/smelt-go/smelt/fixtures"
)

// TestRangeProbeBits pins every bit that a probe reports: processors, numbers
// of cores and compilers must agree, since the files of a conversion depend on
// it.
func TestRangeProbeBits(t *testing.T) {
	for name, want := range map[string]uint64{
		"gemma3":        0xf20867e5991a57e1,
		"llama3-scaled": 0x8cf21eb005c5199e,
		"qwen2":         0x4381ee6a80bff5ae,
		"gemma4-e2b":    0x78791e9f19fc33b4,
		"gemma4-e4b":    0xad403c36b7991dc2,
	} {
		dir, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		m := openModel(t, dir)
		ids := make([]int32, 40)
		for i := range ids {
			ids[i] = int32(i * 7 % m.Config().Vocab)
		}
		for _, cores := range []int{1, 3} {
			before := runtime.GOMAXPROCS(cores)
			r, err := m.RangeProbe(t.Context(), ids)
			runtime.GOMAXPROCS(before)
			if err != nil {
				t.Fatal(err)
			}
			if got := hash(r); got != want {
				t.Errorf("%s: %d sites on %d cores hash to %#x, want %#x", name, len(r.Sites), cores, got, want)
			}
		}
	}
}

func hash(r Ranges) uint64 {
	h := fnv.New64a()
	for _, s := range r.Sites {
		fmt.Fprintf(h, "%s %x\n", s.Name, math.Float32bits(s.MaxAbs))
	}
	return h.Sum64()
}

// TestDrafterRangeProbe: the bits, and that no step the probe did not see is
// forgotten: the peaks are those of the rounds it runs.
func TestDrafterRangeProbe(t *testing.T) {
	want := map[string]uint64{"gemma4-mtp/assistant": 0xac5ff732c13eabfb, "gemma4-mtp/assistant-plain": 0x75677b8fbe67cb5}
	for _, g := range drafterGoldens(t) {
		ids := g.ids[:61]
		r, err := g.drafter.RangeProbe(t.Context(), g.target, ids, 3)
		if err != nil {
			t.Fatal(err)
		}
		if got := hash(r); got != want[g.name] {
			t.Errorf("%s: %d sites hash to %#x, want %#x", g.name, len(r.Sites), got, want[g.name])
		}
		peaks := map[string]float32{}
		for _, n := range []int{15, 30, 45, 60} {
			tap := func(name string, x *Matrix) { peaks[name] = max(peaks[name], x.MaxAbs()) }
			if _, err := g.drafter.Draft(t.Context(), g.target, DraftRound{N: n, KV: g.result.KV}, ids[n], g.result.Norm.Row(n-1), 3, tap); err != nil {
				t.Fatal(err)
			}
		}
		if len(r.Sites) != len(peaks)+2*g.drafter.config.Layers {
			t.Errorf("%d sites, want %d", len(r.Sites), len(peaks)+2*g.drafter.config.Layers)
		}
		for name, want := range peaks {
			if got, _ := r.Get(name); math.Abs(float64(got-want)) > 1e-4*float64(want) {
				t.Errorf("%s: %s peaks at %v, want %v", g.name, name, got, want)
			}
		}
		for layer := range g.drafter.config.Layers {
			scores, ok := r.Get(fmt.Sprintf("layers.%d.scores", layer))
			bound, _ := r.Get(fmt.Sprintf("layers.%d.scores_bound", layer))
			if !ok || scores > bound {
				t.Errorf("%s: layer %d: scores %v, bound %v", g.name, layer, scores, bound)
			}
		}
	}
	g := drafterGoldens(t)[0]
	if _, err := g.drafter.RangeProbe(t.Context(), openModel(t, loadGolden(t, "qwen2").dir), g.ids, 1); err == nil {
		t.Error("a target of another width: no error")
	}
}

// TestRangeProbe recomputes every range from the taps, and the scores by brute
// force.
func TestRangeProbe(t *testing.T) {
	for _, name := range []string{"gemma3", "gemma4-e2b", "gemma4-e4b"} {
		t.Run(name, func(t *testing.T) { testRangeProbe(t, loadGolden(t, name)) })
	}
}

func testRangeProbe(t *testing.T, g *golden) {
	m := openModel(t, g.dir)
	c := m.Config()
	r, err := m.RangeProbe(t.Context(), g.ids)
	if err != nil {
		t.Fatal(err)
	}
	taps := map[string]*Matrix{}
	if _, err := m.Forward(t.Context(), g.ids, Options{Tap: func(name string, x *Matrix) { taps[name] = x.Clone() }}); err != nil {
		t.Fatal(err)
	}
	if len(r.Sites) != len(taps)+2*c.Layers {
		t.Errorf("%d sites, want %d", len(r.Sites), len(taps)+2*c.Layers)
	}
	// The probe adds up in an order of its own.
	close := func(got, want float32) bool { return math.Abs(float64(got-want)) <= 1e-5*float64(want) }
	for name, x := range taps {
		if got, ok := r.Get(name); !ok || !close(got, x.MaxAbs()) {
			t.Errorf("%s: %v, want %v", name, got, x.MaxAbs())
		}
	}
	for layer := range c.Layers {
		at := func(site string) string { return fmt.Sprintf("layers.%d.%s", layer, site) }
		l := c.Layer(layer)
		q, k := taps[at("q")], taps[fmt.Sprintf("layers.%d.k", l.KVSource)]
		var attended, any float64
		for i := range q.Rows {
			for j := range q.Rows {
				for h := range c.Heads {
					var s float64
					for d := range l.HeadDim {
						s += float64(q.Row(i)[h*l.HeadDim+d]) * float64(k.Row(j)[h/(c.Heads/l.KVHeads)*l.HeadDim+d])
					}
					s = math.Abs(s) * float64(c.ScoreScale)
					any = max(any, s)
					if j <= i && (c.Kinds[layer] == FullAttention || i-j < c.Window) {
						attended = max(attended, s)
					}
				}
			}
		}
		scores, _ := r.Get(at("scores"))
		bound, _ := r.Get(at("scores_bound"))
		if math.Abs(float64(scores)-attended) > 1e-5*attended {
			t.Errorf("%s: %v, want %v", at("scores"), scores, attended)
		}
		if float64(bound) < any || float64(bound) > 20*any {
			t.Errorf("%s: %v for a largest score of %v", at("scores_bound"), bound, any)
		}
	}
	residual := r.Residual()
	if len(residual) != c.Layers+1 || residual[0] != taps["embed"].MaxAbs() ||
		!close(residual[3], peakOf(taps, "layers.2.resid_mid", "layers.2.resid_mlp", "layers.2.resid_ple", "layers.2.out")) {
		t.Errorf("residual ranges: %v", residual)
	}
	var act float32
	for layer := range c.Layers {
		act = max(act, taps[fmt.Sprintf("layers.%d.mlp_act", layer)].MaxAbs())
	}
	if !close(r.Max("mlp_act"), act) {
		t.Errorf("Max(mlp_act): %v, want %v", r.Max("mlp_act"), act)
	}
}

func peakOf(taps map[string]*Matrix, names ...string) float32 {
	var peak float32
	for _, name := range names {
		if m, ok := taps[name]; ok {
			peak = max(peak, m.MaxAbs())
		}
	}
	return peak
}
