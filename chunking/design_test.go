package chunking_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/models"
)

var update = flag.Bool("update", false, "rewrite the goldens")

func config(t testing.TB, name string) *models.Config {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := models.ParseConfig(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func functions(t testing.TB, s string) []chunking.FunctionSpec {
	t.Helper()
	f, err := chunking.ParseFunctions(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// options are those of a two-chunk bundle with every function.
func options(t testing.TB, kv, embed string) chunking.Options {
	return chunking.Options{
		Context: 64, Ranges: []chunking.Range{{First: 0, Last: 4}, {First: 4, Last: 8}},
		Functions: functions(t, "decode,prefill:5,verify:3"), KV: kv, Embed: embed, Compute: "fp16",
		Head: chunking.Head{Token: true, Logits: true, Hidden: "post"},
	}
}

func design(t testing.TB, name string, o chunking.Options) *chunking.Contract {
	t.Helper()
	c, err := chunking.Design(config(t, name), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ports prints what every function takes and returns.
func ports(c *chunking.Contract) string {
	var b strings.Builder
	fmt.Fprintf(&b, "context %d, kv %s, embedding %s %q scale %.6g, mask %g\n", c.Context, c.KV, c.Embedding.Mode, c.Embedding.File, c.Embedding.Scale, c.Mask.Blocked)
	for _, k := range []models.Kind{models.Full, models.Sliding} {
		if a, ok := c.Attention[k]; ok {
			fmt.Fprintf(&b, "%s: %d slots, %s, window %d, %d frequencies\n", k, a.Slots, a.Layout, a.Window, len(a.InvFreq))
		}
	}
	for _, ch := range c.Chunks {
		for _, f := range ch.Functions {
			fmt.Fprintf(&b, "\n%s %s, layers %d-%d: %s, %s of %d\n", ch.Name, ch.File, ch.First, ch.Last, f.Name, f.Kind, f.T)
			for _, l := range []struct {
				what  string
				ports []chunking.Port
			}{{"in", f.Inputs}, {"state", f.States}, {"out", f.Outputs}} {
				for _, p := range l.ports {
					fmt.Fprintf(&b, "  %-5s %-20s %s%v %s", l.what, p.Name, p.DType, p.Shape, p.Role)
					if p.Kind != "" {
						fmt.Fprintf(&b, " %s", p.Kind)
					}
					if len(p.Layers) > 0 {
						fmt.Fprintf(&b, " layers %v", p.Layers)
					}
					if p.Norm != "" {
						fmt.Fprintf(&b, " %s-norm", p.Norm)
					}
					b.WriteByte('\n')
				}
			}
		}
	}
	return b.String()
}

// TestDesign prints every port of every function in both forms of cache.
func TestDesign(t *testing.T) {
	for name, o := range map[string]chunking.Options{
		"tensor": options(t, chunking.KVTensor, chunking.EmbedSidecar),
		"state":  options(t, chunking.KVState, chunking.EmbedGraph),
	} {
		got := ports(design(t, "gemma3", o))
		path := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got; accept with -update)\n%s", path, d)
		}
	}
}

// TestDesignShapes: caches and slices of all chunks together hold every layer
// once, and widths agree.
func TestDesignShapes(t *testing.T) {
	for _, name := range []string{"llama-tied", "llama3-scaled", "qwen2", "qwen3", "gemma3"} {
		cfg := config(t, name)
		for _, kv := range []string{chunking.KVTensor, chunking.KVState} {
			o := options(t, kv, chunking.EmbedSidecar)
			o.Ranges = []chunking.Range{{First: 0, Last: 1}, {First: 1, Last: cfg.Layers - 1}, {First: cfg.Layers - 1, Last: cfg.Layers}}
			c := design(t, name, o)
			for fi, spec := range o.Functions {
				held := map[int]int{}
				for i := range c.Chunks {
					f := &c.Chunks[i].Functions[fi]
					role := models.KeyCache
					caches := f.Inputs
					if kv == chunking.KVState {
						role, caches = models.KVState, f.States
					}
					for _, p := range caches {
						if p.Role != role {
							continue
						}
						for _, l := range p.Layers {
							held[l]++
							if cfg.Kinds[l] != p.Kind {
								t.Errorf("%s %s: layer %d is in the %s cache", name, f.Name, l, p.Kind)
							}
						}
						mask := chunking.Find(f.Inputs, models.Mask, p.Kind)
						if slots := c.Attention[p.Kind].Slots; p.Shape[2] != slots || mask == nil || mask.Shape[3] != slots+spec.T || mask.Shape[2] != spec.T {
							t.Errorf("%s %s: cache %v, mask %+v, %d slots", name, f.Name, p.Shape, mask, slots)
						}
					}
				}
				for l := range cfg.Layers {
					if held[l] != 1 {
						t.Errorf("%s %s: layer %d is in %d caches", name, kv, l, held[l])
					}
				}
			}
		}
	}
}

// TestWindow: a ring is as long as the window, or the context if that is
// shorter.
func TestWindow(t *testing.T) {
	o := options(t, chunking.KVTensor, chunking.EmbedSidecar)
	for context, slots := range map[int]int{16: 16, 24: 24, 300: 24} {
		o.Context = context
		c := design(t, "gemma3", o)
		if a := c.Attention[models.Sliding]; a.Slots != slots || a.Window != 24 || a.Layout != chunking.Ring {
			t.Errorf("context %d: %+v, want %d slots", context, a, slots)
		}
		if a := c.Attention[models.Full]; a.Slots != context || a.Window != 0 || a.Layout != chunking.Linear {
			t.Errorf("context %d: full %+v", context, a)
		}
	}
}

func TestDesignErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*chunking.Options)
		want string
	}{
		{"no context", func(o *chunking.Options) { o.Context = 0 }, "context 0: want at least 1"},
		{"long context", func(o *chunking.Options) { o.Context = 513 }, "context 513 exceeds max_position_embeddings 512"},
		{"kv", func(o *chunking.Options) { o.KV = "ring" }, `kv "ring" is not known (want tensor, state or coreml-llm)`},
		{"embed", func(o *chunking.Options) { o.Embed = "" }, `embed "" is not known (want sidecar, int8, head or graph)`},
		{"compute", func(o *chunking.Options) { o.Compute = "int8" }, `compute "int8" is not known (want fp16 or fp32)`},
		{"fp32 states", func(o *chunking.Options) { o.KV, o.Compute = chunking.KVState, "fp32" }, "states are fp16 only"},
		{"long draft", func(o *chunking.Options) { o.KV, o.Functions[2].T = chunking.KVCoreMLLLM, 25 }, "function verify_25 takes 25 drafts, more than the sliding window of 24"},
		{"graph embedding", func(o *chunking.Options) { o.KV, o.Embed = chunking.KVCoreMLLLM, chunking.EmbedGraph }, "kv coreml-llm takes embedding rows from the host: use embed sidecar"},
		{"long function", func(o *chunking.Options) { o.Functions[1].T = 65 }, "function prefill_65 takes 65 tokens, more than the context of 64"},
		{"no ranges", func(o *chunking.Options) { o.Ranges = nil }, "no chunks"},
		{"a gap", func(o *chunking.Options) { o.Ranges[1].First = 5 }, "chunk chunk_02 holds layers 5 to 8; expected to start at 4"},
		{"too short", func(o *chunking.Options) { o.Ranges[1].Last = 7 }, "hold 7 of 8 layers"},
		{"no head", func(o *chunking.Options) { o.Head = chunking.Head{Hidden: "pre"} }, "no output has the role token_id or logits"},
		{"no functions", func(o *chunking.Options) { o.Functions = nil }, "0 functions"},
	} {
		o := options(t, chunking.KVTensor, chunking.EmbedSidecar)
		tt.edit(&o)
		if _, err := chunking.Design(config(t, "gemma3"), o); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "chunking: ") {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestDraftsPastTheWindow: caches that the host commits to, or that are states,
// take more drafts than a sliding window is long.
func TestDraftsPastTheWindow(t *testing.T) {
	for _, kv := range []string{chunking.KVTensor, chunking.KVState} {
		o := options(t, kv, chunking.EmbedSidecar)
		o.Functions[2].T = 30
		if _, err := chunking.Design(config(t, "gemma3"), o); err != nil {
			t.Errorf("%s: %v", kv, err)
		}
	}
}

func TestResidualScale(t *testing.T) {
	c := design(t, "gemma3", options(t, chunking.KVTensor, chunking.EmbedSidecar))
	plain := c.Embedding.Scale
	c.SetResidualScale(1.0 / 8)
	if c.Embedding.Scale != plain/8 {
		t.Errorf("embedding scale %g, want %g", c.Embedding.Scale, plain/8)
	}
	c.SetResidualScale(1.0 / 2)
	if c.Embedding.Scale != plain/2 || c.ResidualScale != 0.5 {
		t.Errorf("set again: embedding scale %g, want %g", c.Embedding.Scale, plain/2)
	}
	p, err := c.Part(&c.Chunks[0], &c.Chunks[0].Functions[0])
	if err != nil || !p.Scaled {
		t.Errorf("part of a scaled contract: Scaled is %v (%v)", p.Scaled, err)
	}
}

// TestRoundTrip writes a contract and reads it back.
func TestRoundTrip(t *testing.T) {
	for _, kv := range []string{chunking.KVTensor, chunking.KVState} {
		c := design(t, "gemma3", options(t, kv, chunking.EmbedSidecar))
		c.SetResidualScale(1.0 / 4)
		data, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, chunking.ContractFile), data, 0o644); err != nil {
			t.Fatal(err)
		}
		back, err := chunking.ReadContract(dir)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c, back); d != "" {
			t.Errorf("(-written +read)\n%s", d)
		}
		again, err := back.Marshal()
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("written again it differs (%v)", err)
		}
	}
}

func TestReadContractErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, chunking.ContractFile)
	if _, err := chunking.ReadContract(dir); err == nil || !strings.Contains(err.Error(), "is not a bundle") {
		t.Errorf("no file: %v", err)
	}
	good, err := design(t, "gemma3", options(t, chunking.KVTensor, chunking.EmbedSidecar)).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ data, want string }{
		"truncated":   {string(good[:len(good)/2]), "unexpected EOF"},
		"unknown key": {strings.Replace(string(good), `"version"`, `"colour": 1, "version"`, 1), `unknown field "colour"`},
		"wrong type":  {strings.Replace(string(good), `"context": 64`, `"context": "64"`, 1), "context"},
		"version":     {strings.Replace(string(good), `"version": 1`, `"version": 2`, 1), "version 2 is not supported"},
	} {
		if err := os.WriteFile(path, []byte(tt.data), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := chunking.ReadContract(dir); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %q and the file", name, err, tt.want)
		}
	}
}

// TestValidate breaks a good contract in one place at a time.
func TestValidate(t *testing.T) {
	type contract = chunking.Contract
	for _, tt := range []struct {
		name string
		edit func(*contract)
		want string
	}{
		{"version", func(c *contract) { c.Version = 0 }, "version 0 is not supported"},
		{"context", func(c *contract) { c.Context = 0 }, "context is 0"},
		{"scale", func(c *contract) { c.ResidualScale = 0.3 }, "residual_scale 0.3 is not a power of two"},
		{"negative scale", func(c *contract) { c.ResidualScale = -0.5 }, "residual_scale -0.5"},
		{"compute", func(c *contract) { c.Compute = "bf16" }, `compute is "bf16"`},
		{"kv", func(c *contract) { c.KV = "" }, `kv is ""`},
		{"mask", func(c *contract) { c.Mask.Blocked = 0 }, "mask.blocked is 0"},
		{"embedding mode", func(c *contract) { c.Embedding.Mode = "host" }, `embedding mode is "host"`},
		{"embedding file", func(c *contract) { c.Embedding.File = "../e.safetensors" }, `file "../e.safetensors"`},
		{"embedding scale", func(c *contract) { c.Embedding.Scale = 0 }, "embedding scale is 0"},
		{"kinds", func(c *contract) { c.Model.Kinds = c.Model.Kinds[1:] }, "layer_kinds has 7 entries for 8 layers"},
		{"unknown kind", func(c *contract) { c.Model.Kinds[2] = "linear" }, `layer 2 is "linear", which attention does not describe`},
		{"slots", func(c *contract) { c.Attention[models.Full] = chunking.Attn{Layout: chunking.Linear} }, "attention full: 0 slots"},
		{"layout", func(c *contract) { a := c.Attention[models.Full]; a.Layout = "paged"; c.Attention[models.Full] = a }, `layout "paged"`},
		{"frequencies", func(c *contract) {
			a := c.Attention[models.Full]
			a.InvFreq = a.InvFreq[1:]
			c.Attention[models.Full] = a
		}, "attention full: 15 frequencies for head_dim 32"},
		{"window", func(c *contract) { a := c.Attention[models.Sliding]; a.Slots = 23; c.Attention[models.Sliding] = a }, "23 slots cannot hold a window of 24"},
		{"no chunks", func(c *contract) { c.Chunks = nil }, "no chunks"},
		{"chunks out of order", func(c *contract) { slices.Reverse(c.Chunks) }, "chunk chunk_02 holds layers 4 to 8; expected to start at 0"},
		{"empty chunk", func(c *contract) { c.Chunks[0].Last = 0 }, "chunk chunk_01 holds layers 0 to 0"},
		{"layers missing", func(c *contract) { c.Chunks[1].Last = 7; relayer(c) }, "the chunks hold 7 of 8 layers"},
		{"too many layers", func(c *contract) { c.Chunks[1].Last = 9 }, "the chunks hold 9 of 8 layers"},
		{"file outside", func(c *contract) { c.Chunks[0].File = "/tmp/x.mlpackage" }, `file "/tmp/x.mlpackage" is not a plain name`},
		{"file twice", func(c *contract) { c.Chunks[1].File = c.Chunks[0].File }, "share a name"},
		{"functions differ", func(c *contract) { c.Chunks[1].Functions[1].T = 6 }, "function prefill_5 differs from that of the first chunk"},
		{"functions missing", func(c *contract) { c.Chunks[1].Functions = c.Chunks[1].Functions[1:] }, "2 functions, the first chunk has 3"},
		{"function twice", func(c *contract) {
			for i := range c.Chunks {
				c.Chunks[i].Functions[2] = c.Chunks[i].Functions[1]
			}
		}, "function prefill_5 is there twice"},
		{"function kind", func(c *contract) {
			for i := range c.Chunks {
				c.Chunks[i].Functions[1].Kind = "draft"
			}
		}, `kind "draft" is not known`},
		{"long function", func(c *contract) {
			for i := range c.Chunks {
				c.Chunks[i].Functions[1].T = 65
			}
		}, "a prefill of 65 tokens in a context of 64"},
		{"port type", func(c *contract) { c.Chunks[0].Functions[0].Inputs[0].DType = "half" }, "port hidden_states has type half"},
		{"port shape", func(c *contract) { c.Chunks[0].Functions[0].Inputs[0].Shape = nil }, "port hidden_states has type fp16 []"},
		{"port name", func(c *contract) { c.Chunks[0].Functions[0].Inputs[0].Name = "hidden.states" }, `port name "hidden.states" is not legal`},
		{"port twice", func(c *contract) { f := &c.Chunks[0].Functions[0]; f.Outputs = append(f.Outputs, f.Outputs[0]) }, "port hidden_states_out is there twice"},
		{"norm", func(c *contract) { c.Chunks[0].Functions[0].Inputs[0].Norm = "mid" }, `norm is "mid", want pre or post`},
		{"no hidden", func(c *contract) { f := &c.Chunks[1].Functions[0]; f.Inputs = f.Inputs[1:] }, "no input has the role hidden_states"},
		{"nothing handed on", func(c *contract) { f := &c.Chunks[0].Functions[0]; f.Outputs = f.Outputs[1:] }, "no output has the role hidden_states_out"},
		{"no head", func(c *contract) {
			f := &c.Chunks[1].Functions[0]
			f.Outputs = slices.DeleteFunc(f.Outputs, func(p chunking.Port) bool { return p.Role == models.TokenID || p.Role == models.Logits })
		}, "no output has the role token_id or logits"},
		{"cache layers", func(c *contract) {
			chunking.Find(c.Chunks[1].Functions[0].Inputs, models.KeyCache, models.Sliding).Layers[0] = 3
		}, "port K_sliding_in stacks layers [3 5 6]; the chunk holds 4 to 8"},
		{"longer context", func(c *contract) { c.Context = 65 }, "attention full: 64 slots cannot hold a context of 65"},
		{"linear window", func(c *contract) {
			a := c.Attention[models.Sliding]
			a.Layout = chunking.Linear
			c.Attention[models.Sliding] = a
		}, "attention sliding: 24 slots cannot hold a context of 64"},
		{"ring without a window", func(c *contract) { a := c.Attention[models.Sliding]; a.Window = 0; c.Attention[models.Sliding] = a }, "cannot hold a window of 0"},
		{"more slots", func(c *contract) { a := c.Attention[models.Full]; a.Slots = 99; c.Attention[models.Full] = a },
			"function decode: input causal_mask_full is fp16 [1 1 1 65], elsewhere the contract implies fp16 [1 1 1 100]"},
		{"other kinds", func(c *contract) { c.Model.Kinds[0] = models.Full }, "input K_full_in is fp16 [1 1 64 32] of layers [3], elsewhere the contract implies fp16 [2 1 64 32] of layers [0 3]"},
		{"vocabulary", func(c *contract) { c.Model.Vocab++ }, "output logits is fp16 [1 1 512], elsewhere the contract implies fp16 [1 1 513]"},
		{"precision", func(c *contract) { c.Compute = "fp32" }, "input hidden_states is fp16 [1 1 96], pre-norm, elsewhere the contract implies fp32"},
		{"caches", func(c *contract) { c.KV = chunking.KVState }, "role key_cache of full attention is not one of such a function in a bundle with state caches"},
		{"role", func(c *contract) {
			chunking.Find(c.Chunks[1].Functions[1].Inputs, models.RopeSin, models.Full).Role = "phase"
		}, "input sin_f: role phase of full attention is not one"},
		{"role twice", func(c *contract) {
			chunking.Find(c.Chunks[1].Functions[1].Inputs, models.RopeSin, models.Full).Role = models.RopeCos
		}, "2 inputs have the role rope_cos of full attention, want 1"},
		{"mask missing", func(c *contract) {
			f := &c.Chunks[0].Functions[2]
			f.Inputs = slices.DeleteFunc(f.Inputs, func(p chunking.Port) bool { return p.Role == models.Mask && p.Kind == models.Full })
		},
			"0 inputs have the role mask of full attention, want 1"},
		{"cache height", func(c *contract) {
			chunking.Find(c.Chunks[1].Functions[0].Inputs, models.KeyCache, models.Sliding).Shape[0] = 4
		}, "port K_sliding_in stacks layers [4 5 6] along 4 entries, want 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := clone(t, design(t, "gemma3", options(t, chunking.KVTensor, chunking.EmbedSidecar)))
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			tt.edit(c)
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// clone makes a contract that shares nothing.
func clone(t *testing.T, c *chunking.Contract) *chunking.Contract {
	t.Helper()
	data, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var out chunking.Contract
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

// relayer drops layers that a chunk no longer holds from its ports, and hands
// hidden states on where the head was.
func relayer(c *chunking.Contract) {
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		for j := range ch.Functions {
			f := &ch.Functions[j]
			for _, ports := range [][]chunking.Port{f.Inputs, f.Outputs, f.States} {
				for k := range ports {
					p := &ports[k]
					n := len(p.Layers)
					p.Layers = slices.DeleteFunc(p.Layers, func(l int) bool { return l >= ch.Last })
					if n > 0 {
						p.Shape[0] = p.Shape[0] / n * len(p.Layers)
					}
				}
			}
			f.Inputs = slices.DeleteFunc(f.Inputs, func(p chunking.Port) bool { return p.Shape[0] == 0 })
			f.Outputs = slices.DeleteFunc(f.Outputs, func(p chunking.Port) bool { return p.Shape[0] == 0 })
		}
	}
}
