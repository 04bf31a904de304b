package allocate

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
)

// The allocator's known example: 3 blocks, 5 bits asked for, 5.304347826086956
// given.
func TestGreedyKnownExample(t *testing.T) {
	var layers []Layer
	for b := range 3 {
		for i, c := range []struct {
			name   string
			params int64
		}{{"self_attn.q_proj", 1 << 20}, {"self_attn.k_proj", 1 << 18}, {"self_attn.v_proj", 1 << 18}, {"self_attn.o_proj", 1 << 20},
			{"mlp.gate_proj", 3 << 20}, {"mlp.up_proj", 3 << 20}, {"mlp.down_proj", 3 << 20}} {
			layers = append(layers, Layer{fmt.Sprintf("model.layers.%d.%s", b, c.name),
				map[int]float64{4: 0, 8: float64(b+1) * 0.001 * (1 + 0.1*float64(i))}, c.params})
		}
	}
	r, err := Greedy(layers, GreedyOptions{Target: 5, Bits: []int{4, 8}, ProtectEnds: true, Protect: 1, FloorPerBlock: 2, MaxLowRun: 3})
	if err != nil {
		t.Fatal(err)
	}
	want := []int{8, 8, 8, 4, 4, 4, 4, 8, 8, 4, 4, 4, 4, 4, 8, 8, 8, 8, 4, 8, 8}
	if !slices.Equal(r.Bits, want) || r.Achieved != 5.304347826086956 || r.High != 11 || r.Low != 10 {
		t.Errorf("%+v, want bits %v", r, want)
	}
}

// testdata/optiq.json holds random inputs and what mlx-optiq 0.7.7 made of them,
// optiq_odd.json such with NaN and with no blocks at the ends to protect;
// SMELT_OPTIQ_CASES names a further file (see interop/oracles/allocators.py).
func TestGreedyPublishedPackage(t *testing.T) {
	files := []string{"testdata/optiq.json", "testdata/optiq_odd.json"}
	if more := os.Getenv("SMELT_OPTIQ_CASES"); more != "" {
		files = append(files, more)
	}
	for _, file := range files {
		greedyCases(t, file)
	}
}

func greedyCases(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Layers []struct {
			Name          string
			Sensitivities map[int]float64
			Parameters    int64
			NaN           []int // widths whose sensitivity is not a number
		}
		Options struct {
			Target  float64 `json:"target_bpw"`
			Bits    []int   `json:"candidate_bits"`
			Ends    bool    `json:"protect_first_last"`
			Protect int     `json:"n_protect"`
			Floor   int     `json:"n_floor_per_block"`
			Run     int     `json:"max_low_bit_run"`
		}
		Bits      []int
		Achieved  float64
		High, Low int
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		var layers []Layer
		for _, l := range c.Layers {
			for _, b := range l.NaN {
				l.Sensitivities[b] = math.NaN()
			}
			layers = append(layers, Layer{l.Name, l.Sensitivities, l.Parameters})
		}
		o := c.Options
		r, err := Greedy(layers, GreedyOptions{o.Target, o.Bits, o.Ends, o.Protect, o.Floor, o.Run})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Bits, c.Bits) || r.Achieved != c.Achieved || r.High != c.High || r.Low != c.Low {
			t.Errorf("%s: case %d: %v %v, want %v %v", file, i, r.Bits, r.Achieved, c.Bits, c.Achieved)
		}
	}
	if len(cases) == 0 {
		t.Errorf("%s has no cases", file)
	}
	t.Logf("%s: %d cases", file, len(cases))
}

// testdata/mlx_threshold.json holds random modules and the threshold that mlx-lm
// 0.32.2 estimated for them, bit for bit.
func TestThresholdPublishedPackage(t *testing.T) {
	data, err := os.ReadFile("testdata/mlx_threshold.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Items          []Binary
		Fixed, Weights int64
		Target         float64
		Threshold      float64
		Chosen         []bool
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		high, threshold, err := Threshold(c.Items, c.Fixed, c.Weights, c.Target)
		if err != nil || threshold != c.Threshold || !slices.Equal(high, c.Chosen) {
			t.Errorf("case %d: threshold %v, %v, %v; want %v, %v", i, threshold, high, err, c.Threshold, c.Chosen)
		}
	}
	if len(cases) < 20 {
		t.Errorf("%d cases", len(cases))
	}
}

// A greedy step that looks bad hides the good one behind it; the exact solution
// sees it.
func TestExactBeatsSteps(t *testing.T) {
	p := Problem{Cap: 12, Items: []Item{
		{Name: "a", Candidates: []Candidate{{"4", 4, 4, 1}, {"5", 5, 5, .99}, {"8", 8, 8, 0}}},
		{Name: "b", Candidates: []Candidate{{"4", 4, 4, .5}, {"8", 8, 8, .3}}},
	}}
	s, err := Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	if s.Damage != .5 || !slices.Equal(s.Choice, []int{2, 0}) {
		t.Errorf("%+v", s)
	}
}

func TestStaticPrior(t *testing.T) {
	for name, want := range map[string]float64{
		"model.embed_tokens": 1, "model.layers.0.mlp.up_proj": .9, "model.layers.17.self_attn.q_proj": 1, "model.layers.1.mlp.up_proj": .65,
		"model.layers.9.mlp.up_proj": .30 + .15*(1-8.0/9), "model.layers.9.self_attn.v_proj": .60 + .15*(1-8.0/9), "model.layers.9.mlp.experts.up_proj": .20 + .15*(1-8.0/9),
	} {
		if got := StaticPrior(name, 18); math.Abs(got-want) > 1e-15 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if s := Static("model.embed_tokens", 18, []int{8, 4, 6}); s[4] != 1 || s[6] != .5 || s[8] != 0 {
		t.Errorf("%v", s)
	}
}

func TestThreshold(t *testing.T) {
	// One tensor of nine tenths: above the threshold it alone exceeds the target.
	items := []Binary{{"embed", 3, 4500, 5500}, {"q", 2, 450, 550}, {"k", 1, 50, 60}}
	high, _, err := Threshold(items, 0, 10_000, 4.5)
	if err != nil || !slices.Equal(high, []bool{true, false, false}) {
		t.Errorf("%v, %v: the middle of the last interval is below the largest sensitivity", high, err)
	}
	if high, _, err := Threshold(items, 0, 10_000, 8); err != nil || !slices.Equal(high, []bool{true, true, false}) {
		t.Errorf("%v, %v", high, err)
	}
}

func TestIsotonic(t *testing.T) {
	got := Isotonic([]float64{5, 3, 4, 1, 2, 0}, []float64{1, 1, 3, 1, 1, 1})
	want := []float64{5, 3.75, 3.75, 1.5, 1.5, 0}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestUniform(t *testing.T) {
	p := Problem{Fixed: 1, Cap: 100, Items: []Item{
		{Name: "a", Candidates: []Candidate{{"3", 3, 30, 1}, {"4", 4, 40, .5}, {"8", 8, 80, 0}}},
		{Name: "b", Candidates: []Candidate{{"4", 4, 4, .5}, {"3", 3, 3, .8}}},
	}}
	s, err := Uniform(p)
	if err != nil || s.Damage != 1 || s.Cost != 45 || !slices.Equal(s.Choice, []int{1, 0}) {
		t.Errorf("%+v, %v", s, err)
	}
	p.Cap = 10
	if _, err := Uniform(p); err == nil {
		t.Error("no format fits")
	}
}
