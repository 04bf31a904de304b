package models_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

// design is a contract of chunks cut at the given layers.
func design(t testing.TB, m *models.Model, kv, functions string, cuts ...int) *chunking.Contract {
	t.Helper()
	fs, err := chunking.ParseFunctions(functions)
	if err != nil {
		t.Fatal(err)
	}
	o := chunking.Options{Context: 64, Functions: fs, KV: kv, Embed: chunking.EmbedGraph, Compute: "fp16", Head: chunking.Head{Token: true, Logits: true}}
	for i := range len(cuts) - 1 {
		o.Ranges = append(o.Ranges, chunking.Range{First: cuts[i], Last: cuts[i+1]})
	}
	c, err := chunking.Design(m.Config(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func part(t testing.TB, c *chunking.Contract, chunk int, function string) models.Part {
	t.Helper()
	ch := &c.Chunks[chunk]
	p, err := c.Part(ch, ch.Function(function))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// decodePart is the decode function of layers [first, last).
func decodePart(t testing.TB, m *models.Model, first, last int) models.Part {
	t.Helper()
	cuts, at := []int{first, last}, 0
	if first > 0 {
		cuts, at = append([]int{0}, cuts...), 1
	}
	if last < m.Config().Layers {
		cuts = append(cuts, m.Config().Layers)
	}
	return part(t, design(t, m, chunking.KVTensor, "decode", cuts...), at, "decode")
}

func build(t testing.TB, m *models.Model, p models.Part) *mil.Function {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	if err := m.Build(b, p); err != nil {
		t.Fatal(err)
	}
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func text(f *mil.Function) string {
	p := mil.NewProgram()
	p.Functions["main"] = f
	return mil.Text(p)
}

// TestGraphs prints one layer of every architecture, and of Gemma 3 a layer of
// each kind, both ends and the states.
func TestGraphs(t *testing.T) {
	for _, tt := range []struct {
		golden, fixture string
		changes         set
		kv, function    string
		cuts            []int
		chunk           int
	}{
		{"llama", "llama-tied", nil, chunking.KVTensor, "decode", []int{0, 1, 2, 5}, 1},
		{"llama_biased", "llama-biased", nil, chunking.KVTensor, "decode", []int{0, 1, 2, 3}, 1},
		{"qwen2", "qwen2", nil, chunking.KVTensor, "decode", []int{0, 1, 2, 6}, 1},
		{"qwen3", "qwen3", nil, chunking.KVTensor, "verify:2", []int{0, 1, 2, 6}, 1},
		{"gemma3_sliding", "gemma3", nil, chunking.KVTensor, "decode", []int{0, 2, 3, 8}, 1},
		{"gemma3_full", "gemma3", set{"attn_logit_softcapping": 50.0}, chunking.KVTensor, "prefill:3", []int{0, 3, 4, 8}, 1},
		{"gemma3_first_state", "gemma3", nil, chunking.KVState, "prefill:3", []int{0, 1, 8}, 0},
		{"gemma3_last", "gemma3", set{"final_logit_softcapping": 30.0}, chunking.KVTensor, "decode", []int{0, 7, 8}, 1},
		{"gemma3_state_verify", "gemma3", nil, chunking.KVState, "verify:2", []int{0, 3, 4, 8}, 1},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			m := model(t, tt.fixture, tt.changes, load(t, tt.fixture))
			functions := "decode"
			if tt.function != "decode" {
				functions += "," + tt.function
			}
			c := design(t, m, tt.kv, functions, tt.cuts...)
			name := strings.Replace(tt.function, ":", "_", 1)
			golden(t, tt.golden+".mil.txt", text(build(t, m, part(t, c, tt.chunk, name))))
		})
	}
}

// TestSharing: functions of one model take their weights from the same
// constants, so a file stores them once.
func TestSharing(t *testing.T) {
	m := model(t, "gemma3", nil, load(t, "gemma3"))
	c := design(t, m, chunking.KVTensor, "decode,prefill:8", 0, 8)
	consts := map[string]mil.Const{}
	for _, o := range build(t, m, part(t, c, 0, "decode")).Body.Ops {
		if o.IsConst() && strings.HasPrefix(o.Name, "model_") {
			consts[o.Name] = o.Out().Const
		}
	}
	shared := 0
	for _, o := range build(t, m, part(t, c, 0, "prefill_8")).Body.Ops {
		if k, ok := consts[o.Name]; ok {
			if k != o.Out().Const {
				t.Errorf("%s is another constant in prefill", o.Name)
			}
			shared++
		}
	}
	if want := len(m.Weights()); shared != want {
		t.Errorf("%d constants shared, want %d", shared, want)
	}
}

// TestChunksJoin: the functions of chunks have the ops of the whole model,
// apart from what hands hidden states on.
func TestChunksJoin(t *testing.T) {
	m := model(t, "qwen2", nil, load(t, "qwen2"))
	kinds := func(f *mil.Function) map[string]int {
		n := map[string]int{}
		for _, o := range f.Body.Ops {
			if !o.IsConst() && o.Kind != "concat" {
				n[o.Kind]++
			}
		}
		return n
	}
	whole := kinds(build(t, m, decodePart(t, m, 0, 6)))
	sum := map[string]int{}
	c := design(t, m, chunking.KVTensor, "decode", 0, 2, 5, 6)
	for i := range c.Chunks {
		for k, n := range kinds(build(t, m, part(t, c, i, "decode"))) {
			sum[k] += n
		}
	}
	for k, n := range whole {
		if sum[k] != n {
			t.Errorf("%s: %d in chunks, %d in one", k, sum[k], n)
		}
	}
}

func TestBuildErrors(t *testing.T) {
	m := model(t, "gemma3", nil, load(t, "gemma3"))
	whole := decodePart(t, m, 0, 8)
	without := func(role models.Role, kind models.Kind) models.Part {
		p := whole
		p.Inputs = nil
		for _, q := range whole.Inputs {
			if q.Role != role || q.Kind != kind {
				p.Inputs = append(p.Inputs, q)
			}
		}
		return p
	}
	for _, tt := range []struct {
		name string
		part models.Part
		want string
	}{
		{"no tokens", without(models.InputIDs, ""), "neither hidden_states nor input_ids"},
		{"no mask", without(models.Mask, models.Full), "full layers need mask, rope_cos and rope_sin"},
		{"no sines", without(models.RopeSin, models.Sliding), "sliding layers need mask, rope_cos and rope_sin"},
		{"no cache", without(models.KeyCache, models.Sliding), "sliding layers need a key and a value cache, or a state"},
	} {
		b := mil.NewBuilder("main", mil.CoreML8)
		if err := m.Build(b, tt.part); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	// A mask of another width fails where it meets the scores.
	p := without("", "")
	for i := range p.Inputs {
		if p.Inputs[i].Role == models.Mask {
			p.Inputs[i].Shape = []int{1, 1, 1, 7}
		}
	}
	state := part(t, design(t, m, chunking.KVState, "decode", 0, 8), 0, "decode")
	state.Inputs = p.Inputs
	for name, p := range map[string]models.Part{"tensor": p, "state": state} {
		b := mil.NewBuilder("main", mil.CoreML8)
		if err := m.Build(b, p); err == nil || !strings.Contains(err.Error(), "layers_0_scores_masked") {
			t.Errorf("%s: mask: %v", name, err)
		}
	}
	for _, ports := range [][]models.Port{p.Inputs, state.States} {
		for i := range ports {
			if ports[i].Role == models.KeyCache || ports[i].Role == models.KVState {
				ports[i].Shape = []int{8}
			}
		}
	}
	for name, p := range map[string]models.Part{"key cache": p, "state": state} {
		b := mil.NewBuilder("main", mil.CoreML8)
		if err := m.Build(b, p); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "S,D]") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRope pins published frequencies: θ^(-2i/d), and the three bands of
// Llama 3.1.
func TestRope(t *testing.T) {
	plain := models.Rope{Type: "default", Theta: 10000, Dim: 8, Factor: 1}
	for _, tt := range []struct {
		rope models.Rope
		want string
	}{
		{plain, "[1 0.1 0.01 0.001]"},
		{models.Rope{Type: "linear", Theta: 10000, Dim: 8, Factor: 4}, "[0.25 0.025 0.0025 0.00025]"},
		// Wavelengths 6.3, 62.8, 628 and 6283 against bands at 250 and 1000.
		{models.Rope{Type: "llama3", Theta: 10000, Dim: 8, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMax: 1000}, "[1 0.1 0.00297535 0.000125]"},
	} {
		var got []string
		for _, f := range tt.rope.InvFreq() {
			got = append(got, fmt.Sprintf("%.6g", f))
		}
		if s := fmt.Sprint(got); s != tt.want {
			t.Errorf("%+v: %s, want %s", tt.rope, s, tt.want)
		}
	}
}
