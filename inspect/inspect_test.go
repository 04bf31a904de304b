package inspect

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/models"
)

func fixture(t *testing.T, name string) string {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// edited is a copy of a fixture with one replacement in one file.
func edited(t *testing.T, name, file, old, repl string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, os.DirFS(fixture(t, name))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), old, repl)), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCheckpointSums compares the report with the files themselves.
func TestCheckpointSums(t *testing.T) {
	for _, name := range fixtures.Names() {
		r, err := Path(fixture(t, name), Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := r.Checkpoint
		if r.Kind != KindCheckpoint || c == nil || c.Problem != "" || c.Config == nil {
			t.Fatalf("%s: %+v", name, r)
		}
		var files, listed int64
		for _, f := range c.Files {
			files += f.Bytes
		}
		for _, x := range c.Tensors {
			listed += x.Bytes
			if x.Use != models.Used {
				t.Errorf("%s: %s is %q", name, x.Name, x.Use)
			}
		}
		// Every tensor is bf16, and headers take the rest of the files.
		if c.Bytes != listed || c.Bytes != 2*c.Parameters || files <= c.Bytes || files > c.Bytes+int64(200*len(c.Tensors)) {
			t.Errorf("%s: files of %d bytes, tensors of %d, listed %d, %d parameters", name, files, c.Bytes, listed, c.Parameters)
		}
		if has := c.Tokenizer != nil; has != (name == fixtures.DemoName) {
			t.Errorf("%s: tokenizer %v", name, c.Tokenizer)
		}
	}
}

// TestProblems describes what cannot be converted, and says why.
func TestProblems(t *testing.T) {
	for _, tc := range []struct {
		dir, want string
		config    bool // the configuration itself is usable
	}{
		{edited(t, "qwen2", "config.json", "Qwen2ForCausalLM", "MambaForCausalLM"), `architecture "MambaForCausalLM" is not supported`, false},
		{edited(t, "qwen2", "config.json", `"vocab_size": 512`, `"vocab_size": 500`), "config.json implies [500", true},
	} {
		r, err := Path(tc.dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := r.Checkpoint
		if !strings.Contains(c.Problem, tc.want) || !strings.Contains(c.Problem, tc.dir) {
			t.Errorf("problem %q lacks %q", c.Problem, tc.want)
		}
		if (c.Config != nil) != tc.config || len(c.Tensors) == 0 {
			t.Errorf("config %v, %d tensors", c.Config, len(c.Tensors))
		}
	}
	bad := edited(t, fixtures.DemoName, "tokenizer.json", `"BPE"`, `"Frob"`)
	r, err := Path(bad, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Checkpoint.Tokenizer.Problem; !strings.Contains(p, "Frob") {
		t.Errorf("tokenizer problem %q", p)
	}
}

// TestWaived counts the tensors of other modalities.
func TestWaived(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, os.DirFS(fixture(t, "gemma3"))); err != nil {
		t.Fatal(err)
	}
	src, err := checkpoint.Open(fixture(t, "gemma3"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var tensors []checkpoint.Tensor
	for _, n := range src.Names() {
		x, _ := src.Tensor(n)
		tensors = append(tensors, checkpoint.Rename(x, "language_model."+n))
	}
	tensors = append(tensors, checkpoint.NewFloat32("vision_tower.patch.weight", []int{3, 5}, make([]float32, 15)))
	if err := checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	c, err := ReadCheckpoint(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Problem != "" || c.Waived != 1 || c.WaivedBytes != 60 || c.Parameters*2 != c.Bytes-60 {
		t.Errorf("problem %q, %d waived of %d bytes, %d parameters in %d bytes", c.Problem, c.Waived, c.WaivedBytes, c.Parameters, c.Bytes)
	}
	for _, x := range c.Tensors {
		want := models.Used
		if strings.HasPrefix(x.Name, "vision_tower.") {
			want = models.Waived
		}
		if x.Use != want || (x.Reason != "") != (want == models.Waived) {
			t.Errorf("%s: %s %q", x.Name, x.Use, x.Reason)
		}
	}
}

// TestBundle holds the description against the conversion's own report.
func TestBundle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bundle")
	rep, err := conversion.Convert(context.Background(), fixture(t, "gemma3"), dir, conversion.Options{Chunks: 3, KV: chunking.KVState, Head: chunking.Head{Token: true}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Path(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := r.Bundle
	if r.Kind != KindBundle || b.Problem() != "" {
		t.Fatalf("kind %s, problem %q", r.Kind, b.Problem())
	}
	for i, c := range b.Chunks {
		w := rep.Chunks[i]
		ops, states := 0, 0
		for _, f := range c.Functions {
			ops += f.Total
			states += len(f.States)
		}
		if c.Weights != w.Weights || c.Model != w.Model || ops != w.Ops || states == 0 {
			t.Errorf("%s: weights %d, model %d, %d ops, %d states; the conversion reports %+v", c.Name, c.Weights, c.Model, ops, states, w)
		}
	}
	if diff := cmp.Diff([]models.Role{models.TokenID, models.TokenLogit}, b.Head); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Window{Layers: 6, Slots: 24, Layout: chunking.Ring, Window: 24}, b.Attention[models.Sliding]); diff != "" {
		t.Error(diff)
	}
	var total int64
	for _, f := range b.Files {
		st, err := os.Stat(filepath.Join(dir, f.Name))
		if err != nil || st.Size() != f.Bytes {
			t.Errorf("%s: %v", f.Name, err)
		}
		total += f.Bytes
	}
	if total != b.Bytes {
		t.Errorf("%d bytes, the files have %d", b.Bytes, total)
	}
}

// TestPackage counts constexprs apart from ops.
func TestPackage(t *testing.T) {
	p, err := ReadPackage(filepath.Join(fixture(t, fixtures.DemoName), "..", "packages", "lut3_grouped", "model.mlpackage"))
	if err != nil {
		t.Fatal(err)
	}
	f := p.Functions[0]
	if f.Constexprs["constexpr_lut_to_dense"] == 0 || f.Ops["constexpr_lut_to_dense"] != 0 || f.Ops["const"] != 0 || f.Constants == 0 {
		t.Errorf("ops %v, constexprs %v, %d constants", f.Ops, f.Constexprs, f.Constants)
	}
	sum := 0
	for _, n := range f.Ops {
		sum += n
	}
	if sum != f.Total || sum == 0 {
		t.Errorf("%d ops, the histogram has %d", f.Total, sum)
	}
}

func TestDetectErrors(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "notes.txt")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		empty:                           "neither a checkpoint",
		file:                            "not of safetensors",
		filepath.Join(empty, "nowhere"): "no such file",
	} {
		if _, err := Detect(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
