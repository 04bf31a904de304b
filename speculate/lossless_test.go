package speculate_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/runtime"
	"github.com/smelt-go/smelt/speculate"
	"github.com/smelt-go/smelt/tokenizer"
)

const allFunctions = "decode,prefill:16,verify:2,verify:4,verify:8"

// coached makes some of a source's drafts right: with random weights a source
// has hardly any. What it makes them is told by a stream of the target's text.
type coached struct {
	speculate.Source
	text []int32
	rng  *rand.Rand
}

func (c *coached) Draft(next int32, n int) (drafter.Draft, error) {
	d, err := c.Source.Draft(next, n)
	d.Tokens = slices.Clone(d.Tokens)
	at := c.Position() + 1
	for i := range d.Tokens {
		if at+i >= len(c.text) || c.rng.Float64() > 0.7 {
			break
		}
		d.Tokens[i] = c.text[at+i]
	}
	return d, err
}

// bench is a target with prompts and the sources that draft for it.
type bench struct {
	target  speculate.Target
	prompts [][]int32
	sources []speculate.Source
}

// heldout cuts the held-out text into prompts of n tokens.
func heldout(t testing.TB, tok *tokenizer.Tokenizer, count, n int) [][]int32 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fixture(t, fixtures.DemoName), "heldout.txt"))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(string(text), tokenizer.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out [][]int32
	for c := range slices.Chunk(ids, n) {
		if len(out) < count && len(c) == n {
			out = append(out, append([]int32{2}, c...)) // <bos>
		}
	}
	return out
}

func randomPrompts(count, vocab int) (out [][]int32) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range count {
		p := make([]int32, 8+rng.IntN(12))
		for i := range p {
			p[i] = int32(rng.IntN(vocab))
		}
		out = append(out, p)
	}
	return out
}

// smallerVocabulary makes a drafter of another vocabulary: the tokenizer
// without its later merges, the model without their rows.
func smallerVocabulary(t testing.TB, keep int) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tinyDrafter)); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(fixture(t, fixtures.DemoName), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tok map[string]any
	if err := json.Unmarshal(data, &tok); err != nil {
		t.Fatal(err)
	}
	m := tok["model"].(map[string]any)
	vocab := m["vocab"].(map[string]any)
	for s, id := range vocab {
		if int(id.(float64)) >= keep {
			delete(vocab, s)
		}
	}
	var merges []any
	for _, x := range m["merges"].([]any) {
		var a, b string
		switch x := x.(type) {
		case []any:
			a, b = x[0].(string), x[1].(string)
		case string:
			fmt.Sscan(x, &a, &b)
		}
		if _, ok := vocab[a+b]; ok && vocab[a] != nil && vocab[b] != nil {
			merges = append(merges, x)
		}
	}
	m["merges"] = merges
	write := func(name string, v any) {
		out, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), out, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", tok)
	var config map[string]any
	data, err = os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	config["vocab_size"] = keep
	write("config.json", config)
	f, err := checkpoint.OpenFile(filepath.Join(tinyDrafter, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []checkpoint.Tensor
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		if x.Shape()[0] == 2048 {
			raw, err := checkpoint.ReadBytes(x)
			if err == nil {
				x, err = checkpoint.NewRaw(name, x.DType(), []int{keep, x.Shape()[1]}, raw[:len(raw)/2048*keep])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, x)
	}
	if err := checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), out, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// trained is the trained pair with every source that needs no states of the
// target.
func trained(t testing.TB, count int) bench {
	fp32 := conversion.Options{Compute: "fp32", Context: 160}
	tok, err := tokenizer.Load(fixture(t, fixtures.DemoName))
	if err != nil {
		t.Fatal(err)
	}
	model := func(name, dir string) *speculate.Model {
		return speculate.NewModel(name, converted(t, dir, "decode,prefill:16", fp32))
	}
	small := smallerVocabulary(t, 1200)
	own, err := tokenizer.Load(small)
	if err != nil {
		t.Fatal(err)
	}
	lookup := func() speculate.Source { return speculate.Lookup("lookup", speculate.PromptLookup{MaxN: 3}) }
	suffix := func() speculate.Source { return speculate.SuffixSource("suffix", speculate.DefaultSuffix) }
	return bench{
		target:  target(t, converted(t, fixture(t, fixtures.DemoName), allFunctions, fp32)),
		prompts: heldout(t, tok, count, 24),
		sources: []speculate.Source{
			model("model", tinyDrafter), lookup(), suffix(),
			speculate.Union(suffix(), lookup(), model("model", tinyDrafter)),
			speculate.CrossVocabulary(model("other vocabulary", small), own, tok, 2048, 0),
		},
	}
}

// assistants are the Gemma 4 assistants with their target.
func assistants(t testing.TB, count int) bench {
	dir := fixture(t, "gemma4-mtp")
	e := converted(t, dir, allFunctions, conversion.Options{Compute: "fp32", Context: 80, Head: head(t, "token,logits,normed")})
	tgt := target(t, e)
	b := bench{target: tgt, prompts: randomPrompts(count, 512)}
	for _, name := range fixtures.Drafters() {
		b.sources = append(b.sources, drafterSource(t, fixture(t, name), conversion.DrafterOptions{Target: dir, Context: 80}, tgt))
	}
	return b
}

// drafterSource converts a drafter and opens it.
func drafterSource(t testing.TB, dir string, o conversion.DrafterOptions, target drafter.Embedder) speculate.Source {
	t.Helper()
	o.Compute, o.NoSync = "fp32", true
	out := filepath.Join(t.TempDir(), "drafter")
	if _, err := conversion.ConvertDrafter(t.Context(), dir, out, o); err != nil {
		t.Fatal(err)
	}
	d, err := engine.OpenDrafter(out, engine.Options{Mode: runtime.FP32})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s, err := d.NewSession(target)
	if err != nil {
		t.Fatal(err)
	}
	return speculate.FromSession(filepath.Base(dir), s)
}

// randomLlama writes a Llama of 10 layers with hidden_size 64 and a vocabulary
// of 512: what the recorded drafters could belong to.
func randomLlama(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	config := `{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":10,
"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"hidden_act":"silu","max_position_embeddings":256,"rms_norm_eps":1e-5,
"rope_theta":10000.0,"vocab_size":512,"tie_word_embeddings":true,"torch_dtype":"float32","attention_bias":false,"mlp_bias":false,"bos_token_id":1,"eos_token_id":2}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(11, 12))
	var out []checkpoint.Tensor
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			if len(shape) == 1 {
				x[i] = 1
			} else {
				x[i] = float32(rng.NormFloat64() * 1.5 / 8)
			}
		}
		out = append(out, checkpoint.NewFloat32(name, shape, x))
	}
	add("model.embed_tokens.weight", 512, 64)
	add("model.norm.weight", 64)
	for l := range 10 {
		p := fmt.Sprintf("model.layers.%d.", l)
		add(p+"input_layernorm.weight", 64)
		add(p+"post_attention_layernorm.weight", 64)
		add(p+"self_attn.q_proj.weight", 64, 64)
		add(p+"self_attn.k_proj.weight", 32, 64)
		add(p+"self_attn.v_proj.weight", 32, 64)
		add(p+"self_attn.o_proj.weight", 64, 64)
		add(p+"mlp.gate_proj.weight", 96, 64)
		add(p+"mlp.up_proj.weight", 96, 64)
		add(p+"mlp.down_proj.weight", 64, 96)
	}
	if err := checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), out, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tapped are the drafters that read the target's residual stream.
func tapped(t testing.TB, count int) bench {
	dir := randomLlama(t)
	e := converted(t, dir, allFunctions, conversion.Options{Compute: "fp32", Context: 80, Chunks: 2, Head: head(t, "token,logits,hidden")})
	tgt := target(t, e)
	b := bench{target: tgt, prompts: randomPrompts(count, 512)}
	for _, name := range fixtures.TapDrafters() {
		o := conversion.DrafterOptions{Context: 80}
		switch filepath.Base(name) {
		case "dspark-forward":
			o.Blocks = []int{1, 2, 3, 4, 5, 6, 7}
		case "eagle3-llama":
			o.Taps = []int{1, 4, 6}
		}
		b.sources = append(b.sources, drafterSource(t, fixture(t, name), o, tgt))
	}
	return b
}

// TestLossless: with every source and 1 to 7 drafts a round, speculation says
// what the target says one token at a time.
func TestLossless(t *testing.T) {
	count, gammas := 64, []int{1, 2, 3, 4, 5, 6, 7}
	if testing.Short() {
		count, gammas = 6, []int{1, 4, 7}
	}
	runs, accepted := 0, map[string]int{}
	for name, make := range map[string]func(testing.TB, int) bench{"trained": trained, "assistants": assistants, "tapped": tapped} {
		b := make(t, count)
		if len(b.prompts) != count {
			t.Fatalf("%s: %d prompts, want %d", name, len(b.prompts), count)
		}
		serial := map[int]*speculate.Stream{}
		for i, prompt := range b.prompts {
			var err error
			if serial[i], err = speculate.Serial(t.Context(), b.target, prompt, speculate.WalkDecode, speculate.Options{MaxTokens: 20, IgnoreEOS: true}); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range b.sources {
			for i, prompt := range b.prompts {
				help := &coached{s, slices.Concat(prompt, serial[i].Output), rand.New(rand.NewPCG(uint64(i), 1))}
				for _, gamma := range gammas {
					source := speculate.Source(s)
					if name != "trained" {
						source = help
					}
					r, err := speculate.Run(t.Context(), b.target, source, prompt, speculate.Options{Gamma: gamma, MaxTokens: 20, IgnoreEOS: true})
					if err != nil {
						t.Fatalf("%s, γ = %d: %v", s.Name(), gamma, err)
					}
					if !slices.Equal(r.Output, serial[i].Output) {
						d := speculate.NewDrift(serial[i], r.Output)
						t.Errorf("%s, γ = %d, prompt %d: the text differs from token %d on", s.Name(), gamma, i, d.First)
					}
					runs++
					accepted[s.Name()] += r.Accepted
				}
			}
		}
	}
	for name, n := range accepted {
		t.Logf("%s: %d drafts accepted", name, n)
		if n == 0 {
			t.Errorf("%s: no draft was ever accepted, so that nothing was tried", name)
		}
	}
	t.Logf("%d runs", runs)
	if len(accepted) != 10 {
		t.Errorf("%d sources, want 10", len(accepted))
	}
}
