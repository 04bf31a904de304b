package parity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/runtime"
)

// convert writes a bundle of a fixture.
func convert(t testing.TB, name string, o conversion.Options) (src, bundle string) {
	t.Helper()
	src, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	bundle = filepath.Join(t.TempDir(), "bundle")
	if _, err := conversion.Convert(context.Background(), src, bundle, o); err != nil {
		t.Fatal(err)
	}
	return src, bundle
}

func functions(t testing.TB, s string) []chunking.FunctionSpec {
	t.Helper()
	f, err := chunking.ParseFunctions(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestGoodConversions holds every fixture in several forms against its
// PyTorch recording: any failure is a false alarm, or a bug.
func TestGoodConversions(t *testing.T) {
	for _, name := range fixtures.Names() {
		for i, o := range []conversion.Options{
			{Compute: "fp32", Chunks: 1, Functions: functions(t, "decode,prefill:16,verify:4")},
			{Compute: "fp16", Chunks: 2, Functions: functions(t, "decode,prefill:16,verify:4"), Context: 160},
			{Compute: "fp16", Chunks: 3, KV: chunking.KVState, Embed: chunking.EmbedGraph, Functions: functions(t, "decode,prefill:10,verify:3"), Context: 140},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				src, bundle := convert(t, name, o)
				start := time.Now()
				rep, err := parity.Verify(context.Background(), bundle, parity.Options{
					Golden: filepath.Join(src, "golden.safetensors"), Checkpoint: src})
				if err != nil {
					t.Fatal(err)
				}
				var b strings.Builder
				if err := rep.WriteText(&b); err != nil {
					t.Fatal(err)
				}
				for _, g := range rep.Gates {
					fmt.Fprintf(&b, "%s %.2fs; ", g.ID, g.Seconds)
				}
				t.Logf("%.2fs\n%s", time.Since(start).Seconds(), b.String())
				if !rep.Pass {
					t.Errorf("failed: %v", rep.Failed())
				}
			})
		}
	}
}

// TestReferences asks about one bundle with everything that can serve as
// reference, and about bundles whose heads say less.
func TestReferences(t *testing.T) {
	short := functions(t, "decode,prefill:16,verify:4")
	prompts := filepath.Join(t.TempDir(), "prompts.txt")
	if err := os.WriteFile(prompts, []byte("The journal is written first.\n\nSELECT count(*) FROM t;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	src, bundle := convert(t, "tiny-gemma3-target", conversion.Options{Chunks: 1, Functions: short, Context: 200})
	_, token := convert(t, "tiny-gemma3-target", conversion.Options{Chunks: 1, Functions: short, Context: 256, Head: chunking.Head{Token: true}})
	_, decode := convert(t, "tiny-gemma3-target", conversion.Options{Chunks: 1, Functions: functions(t, "decode"), Context: 80})
	golden := filepath.Join(src, "golden.safetensors")
	full, err := parity.ReadGolden(golden)
	if err != nil {
		t.Fatal(err)
	}
	small := filepath.Join(t.TempDir(), "compact.safetensors")
	compact(t, full, small, nil)
	plain := []string{"manifest", "app", "codes", "hidden"} // of a bundle for no app, uncompressed, without hidden states
	for _, c := range []struct {
		name, bundle string
		o            parity.Options
		tokens       int
		skipped      []string // beside plain
	}{
		{"golden alone, longer than the context", bundle, parity.Options{Golden: golden}, 256, []string{"recording"}},
		{"compact golden", bundle, parity.Options{Golden: small}, 256, []string{"recording", "layers"}},
		{"golden and checkpoint", bundle, parity.Options{Golden: golden, Checkpoint: src}, 256, []string{}},
		{"checkpoint, built-in prompt", bundle, parity.Options{Checkpoint: src}, 200, []string{"recording"}},
		{"checkpoint and prompts", bundle, parity.Options{Checkpoint: src, Prompts: prompts}, 0, []string{"recording"}},
		{"token head", token, parity.Options{Golden: golden}, 256, []string{"recording", "token", "positions"}},
		{"decode alone", decode, parity.Options{Golden: golden}, 256,
			[]string{"recording", "logits.fp32.prefill", "logits.fp32.verify", "logits.typed.prefill", "logits.typed.verify", "drafts"}},
		{"typed alone", bundle, parity.Options{Golden: golden, Modes: []runtime.Mode{runtime.Typed}}, 256,
			[]string{"recording", "logits.fp32.decode", "logits.fp32.prefill", "logits.fp32.verify", "ladder"}},
	} {
		rep, err := parity.Verify(context.Background(), c.bundle, c.o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if !rep.Pass {
			var b strings.Builder
			_ = rep.WriteText(&b)
			t.Errorf("%s:\n%s", c.name, b.String())
		}
		if c.tokens != 0 && rep.Tokens != c.tokens {
			t.Errorf("%s: %d tokens, want %d", c.name, rep.Tokens, c.tokens)
		}
		skipped := []string{}
		for _, g := range rep.Gates {
			if g.Status == parity.Skip && !slices.Contains(plain, g.ID) {
				skipped = append(skipped, g.ID)
			}
		}
		if d := cmp.Diff(c.skipped, skipped); d != "" {
			t.Errorf("%s: skipped gates: %s", c.name, d)
		}
	}
}

// TestNoVerdict: what cannot be judged is an error, not a failure.
func TestNoVerdict(t *testing.T) {
	src, bundle := convert(t, "llama-tied", conversion.Options{Chunks: 1, Functions: functions(t, "decode")})
	golden := filepath.Join(src, "golden.safetensors")
	for _, c := range []struct {
		name, dir, want string
		o               parity.Options
	}{
		{"nothing to compare with", bundle, "nothing to compare with", parity.Options{}},
		{"no bundle", t.TempDir(), "not a bundle", parity.Options{Golden: golden}},
		{"no golden", bundle, "no such file", parity.Options{Golden: filepath.Join(src, "other.safetensors")}},
		{"not a golden", bundle, "record_pt.py", parity.Options{Golden: filepath.Join(src, "model.safetensors")}},
		{"another vocabulary", bundle, "another model", parity.Options{Golden: goldenOf(t, "llama3-scaled")}},
		{"no checkpoint", bundle, "no such file", parity.Options{Checkpoint: t.TempDir()}},
		{"unknown gate", bundle, "no gate", parity.Options{Golden: golden, Gates: []string{"logits"}}},
		{"prompts with golden", bundle, "prompts go with a checkpoint", parity.Options{Golden: golden, Prompts: "x"}},
		{"prompts without tokenizer", bundle, "no tokenizer.json", parity.Options{Checkpoint: src, Prompts: filepath.Join(src, "config.json")}},
	} {
		if _, err := parity.Verify(context.Background(), c.dir, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", c.name, err, c.want)
		}
	}
}

// TestWrongModelFails: the recording of another model of the same vocabulary
// fails, says so in JSON, and needs no checkpoint to name a layer.
func TestWrongModelFails(t *testing.T) {
	_, bundle := convert(t, "qwen2", conversion.Options{Chunks: 2, Functions: functions(t, "decode")})
	rep, err := parity.Verify(context.Background(), bundle, parity.Options{Golden: goldenOf(t, "llama-tied"), Gates: []string{"logits.typed.decode", "token"}})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Pass || !slices.Equal(rep.Failed(), []string{"logits.typed.decode"}) {
		t.Fatalf("failed gates: %v", rep.Failed())
	}
	data, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Pass  bool
		Gates []struct {
			ID, Status, Reason string
			Numbers            []struct {
				Name         string
				Value, Limit *float64
			}
		}
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Pass || len(got.Gates) != 2 || got.Gates[0].Status != "fail" || got.Gates[0].Reason == "" {
		t.Errorf("JSON: %s", data)
	}
}

// TestBisectionWithoutCheckpoint: the hidden states of a recording name the
// layer.
func TestBisectionWithoutCheckpoint(t *testing.T) {
	_, bundle := convert(t, "gemma3", conversion.Options{Chunks: 2, Functions: functions(t, "decode")})
	full, err := parity.ReadGolden(goldenOf(t, "gemma3"))
	if err != nil {
		t.Fatal(err)
	}
	// A recording whose stream leaves the bundle's after layer 5.
	T, V := len(full.IDs), full.Vocab
	tensors := []checkpoint.Tensor{checkpoint.NewInt32("input_ids", []int{T}, full.IDs)}
	var logits []float32
	for i := range full.Positions {
		row := slices.Clone(full.Positions[i].Row)
		row[(i*7)%V] += 20
		logits = append(logits, row...)
	}
	tensors = append(tensors, checkpoint.NewFloat32("logits", []int{T, V}, logits))
	for site, rows := range full.Hidden {
		name, layer := "", 0
		switch n, _ := fmt.Sscanf(site, "layers.%d.out", &layer); {
		case site == "embed":
			name = "hidden.0"
		case n == 1:
			name = fmt.Sprintf("hidden.%d", layer+1)
		default:
			continue
		}
		var data []float32
		for p := range T {
			row := slices.Clone(rows[p])
			if layer >= 5 {
				row[3] *= -1.5
				row[4] += 30
			}
			data = append(data, row...)
		}
		tensors = append(tensors, checkpoint.NewFloat32(name, []int{T, len(rows[0])}, data))
	}
	path := filepath.Join(t.TempDir(), "golden.safetensors")
	if err := checkpoint.WriteFile(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	rep, err := parity.Verify(context.Background(), bundle, parity.Options{Golden: path, Gates: []string{"logits.typed.decode"}})
	if err != nil {
		t.Fatal(err)
	}
	f := rep.Gates[0].Finding
	if rep.Pass || f == nil || f.Site != "layers.5.out" || f.Layer != 5 || f.Chunk != "chunk_02" || f.Function != "main" && f.Function != "decode" {
		t.Errorf("finding: %v", f)
	}
}

func TestLogits(t *testing.T) {
	src, bundle := convert(t, "llama3-scaled", conversion.Options{Compute: "fp32", Chunks: 2, Functions: functions(t, "decode,prefill:16,verify:4")})
	_, token := convert(t, "llama3-scaled", conversion.Options{Compute: "fp32", Chunks: 2, Functions: functions(t, "decode"), Head: chunking.Head{Token: true}})
	rec, err := parity.ReadGolden(filepath.Join(src, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	ids := rec.IDs[:37]
	out := filepath.Join(t.TempDir(), "out.safetensors")
	for _, via := range []parity.Via{parity.ViaDecode, parity.ViaPrefill, parity.ViaVerify} {
		if err := parity.Logits(context.Background(), bundle, ids, via, runtime.Typed, out); err != nil {
			t.Fatal(err)
		}
		shape, got := read(t, out, "logits")
		if !slices.Equal(shape, []int{37, 448}) {
			t.Fatalf("logits have shape %v", shape)
		}
		for i := range ids {
			for j, want := range rec.Positions[i].Row {
				if d := math.Abs(float64(got[i*448+j] - want)); !(d < 1e-3) {
					t.Fatalf("%s: logit [%d,%d] is off by %g", via, i, j, d)
				}
			}
		}
		if _, back := read(t, out, "input_ids"); int32(back[9]) != ids[9] {
			t.Errorf("input_ids[9] is %v, want %d", back[9], ids[9])
		}
	}
	if err := parity.Logits(context.Background(), token, ids, parity.ViaDecode, runtime.Typed, out); err != nil {
		t.Fatal(err)
	}
	if _, got := read(t, out, "argmax"); int32(got[20]) != rec.Positions[20].Argmax {
		t.Errorf("argmax[20] is %v, want %d", got[20], rec.Positions[20].Argmax)
	}
	before, err := os.ReadDir(filepath.Dir(out))
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"no ids": func() error {
			return parity.Logits(context.Background(), bundle, nil, parity.ViaDecode, runtime.Typed, out)
		},
		"no function": func() error {
			return parity.Logits(context.Background(), token, ids, parity.ViaVerify, runtime.Typed, out)
		},
		"bad id": func() error {
			return parity.Logits(context.Background(), bundle, []int32{1, 448}, parity.ViaDecode, runtime.Typed, out)
		},
		"too long": func() error {
			return parity.Logits(context.Background(), bundle, make([]int32, 513), parity.ViaDecode, runtime.Typed, out)
		},
	} {
		if do() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if after, _ := os.ReadDir(filepath.Dir(out)); len(after) != len(before) {
		t.Errorf("files left behind: %v", after)
	}
}

func read(t *testing.T, path, name string) ([]int, []float32) {
	t.Helper()
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("%s has no %s: %v", path, name, f.Names())
	}
	data, err := checkpoint.ReadAll(x)
	if err != nil {
		t.Fatal(err)
	}
	return x.Shape(), data
}
