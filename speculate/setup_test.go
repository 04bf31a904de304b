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
	"github.com/smelt-go/smelt/internal/testmodel"
	"github.com/smelt-go/smelt/quant"
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

// bench is a target with prompts and the sources that draft for it. With random
// weights, sources are coached.
type bench struct {
	target  *speculate.BundleTarget
	prompts [][]int32
	sources []speculate.Source
	random  bool
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

// chance proposes tokens of no text, which are hardly ever right.
type chance struct{ rng *rand.Rand }

func (c chance) Draft(_ []int32, gamma int) (out []int32) {
	for range gamma {
		out = append(out, int32(c.rng.IntN(512)))
	}
	return out
}

// rules are the ways to look drafts up.
func rules() []speculate.Source {
	return []speculate.Source{
		speculate.Lookup("prompt lookup", speculate.PromptLookup{MaxN: 3}),
		speculate.Lookup("earliest match", speculate.EarliestMatch{MinN: 1, MaxN: 3}),
		speculate.Lookup("recent match", speculate.RecentMatch{N: 2}),
		speculate.Lookup("suffix scan", speculate.SuffixScan{}),
		speculate.SuffixSource("suffix automaton", speculate.DefaultSuffix),
	}
}

// trained is the trained pair, its target converted as o says, with every source
// that needs no states of the target.
func trained(t testing.TB, count int, o conversion.Options) bench {
	fp32 := conversion.Options{Compute: "fp32", Context: 160}
	o.Context = 160
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
	w4 := speculate.NewModel("same vocabulary, 4 bits", converted(t, tinyDrafter, "decode,prefill:16", conversion.Options{Context: 160, Quantize: preset(t, "coreml-int4-b32")}))
	few := rules()
	return bench{
		target:  target(t, converted(t, fixture(t, fixtures.DemoName), allFunctions, o)),
		prompts: heldout(t, tok, count, 24),
		sources: append(rules(),
			model("same vocabulary", tinyDrafter), w4,
			speculate.CrossVocabulary(model("other vocabulary", small), own, tok, 2048, 0),
			speculate.Union(few[4], few[0], model("model", tinyDrafter))),
	}
}

func preset(t testing.TB, name string) *quant.Recipe {
	t.Helper()
	r, err := quant.Preset(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.KeepIndivisible = true
	return r
}

// assistants are the Gemma 4 assistants with their target.
func assistants(t testing.TB, count int) bench {
	dir := fixture(t, "gemma4-mtp")
	e := converted(t, dir, allFunctions, conversion.Options{Compute: "fp32", Context: 80, Head: head(t, "token,logits,normed")})
	tgt := target(t, e)
	b := bench{target: tgt, prompts: randomPrompts(count, 512), random: true}
	for _, name := range fixtures.Drafters() {
		b.sources = append(b.sources, drafterSource(t, fixture(t, name), conversion.DrafterOptions{Target: dir, Context: 80}, tgt))
	}
	few := rules()
	b.sources = append(b.sources, speculate.Union(few[4], few[0], b.sources[0]))
	return b
}

// drafterSource converts a drafter and opens it.
func drafterSource(t testing.TB, dir string, o conversion.DrafterOptions, target drafter.Embedder) speculate.Source {
	t.Helper()
	o.NoSync = true
	name := filepath.Base(dir)
	if o.Compute = "fp32"; o.Quantize != nil {
		o.Compute, name = "fp16", name+", 4 bits"
	}
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
	return speculate.FromSession(name, s)
}

// randomLlama writes the model that the recorded drafters could belong to.
func randomLlama(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := testmodel.Llama(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tapped are the drafters that read the target's residual stream.
func tapped(t testing.TB, count int) bench {
	dir := randomLlama(t)
	e := converted(t, dir, allFunctions, conversion.Options{Compute: "fp32", Context: 80, Chunks: 2, Head: head(t, "token,logits,hidden")})
	tgt := target(t, e)
	b := bench{target: tgt, prompts: randomPrompts(count, 512), random: true}
	for _, name := range fixtures.TapDrafters() {
		o := conversion.DrafterOptions{Context: 80}
		switch filepath.Base(name) {
		case "dspark-forward":
			o.Blocks = []int{1, 2, 3, 4, 5, 6, 7}
		case "eagle3-llama":
			o.Taps = []int{1, 4, 6}
		}
		b.sources = append(b.sources, drafterSource(t, fixture(t, name), o, tgt))
		if filepath.Base(name) == "dspark-forward" {
			o.Quantize = preset(t, "coreml-int4-b32")
			b.sources = append(b.sources, drafterSource(t, fixture(t, name), o, tgt))
			few := rules()
			b.sources = append(b.sources, speculate.Union(few[1], few[2], b.sources[0]))
		}
	}
	return b
}
