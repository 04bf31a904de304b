package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/tokenizer"
)

// batch runs command lines of a script in one process.
func batch(t *testing.T, script string, jobs [][]string) {
	t.Helper()
	data, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jobs.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := oracle(t, "batch.py", "--script", script, file); err != nil {
		t.Errorf("%s: %v\n%s", script, err, tail(out, 4000))
	}
}

// mlxMode is a way to quantize.
type mlxMode struct {
	name   string
	recipe *quant.Recipe
	dtype  checkpoint.DType
	exact  bool // the bits of mx.quantize
}

// mlxModes are all codecs, bit widths, groups, methods, presets and element types
// of directories that stock mlx-lm can load.
func mlxModes(t *testing.T) (modes []mlxMode) {
	t.Helper()
	groups := []int{32, 64, 128}
	for i, bits := range []int{2, 3, 4, 5, 6, 8} {
		g := groups[i%3]
		modes = append(modes, mlxMode{fmt.Sprintf("affine%d-g%d", bits, g), quant.Uniform(bits, g), 0, true},
			mlxMode{fmt.Sprintf("refit%d-g%d", bits, groups[(i+1)%3]), method(quant.Uniform(bits, groups[(i+1)%3]), quant.Refit), 0, false})
	}
	for _, m := range []string{"mxfp4", "mxfp8", "nvfp4"} {
		modes = append(modes, mlxMode{m, &quant.Recipe{Target: quant.TargetMLX, Default: quant.Format{Codec: m}}, 0, true})
	}
	for _, p := range mlxRecipes {
		modes = append(modes, mlxMode{p, preset(t, p, 6), 0, true})
	}
	for _, m := range []quant.Method{quant.ErrorFeedback, quant.Best} {
		modes = append(modes, mlxMode{string(m), method(quant.Uniform(4, 64), m), 0, false})
	}
	metal := quant.Uniform(4, 64)
	metal.Default.Rounding = quant.RoundMetal
	some := quant.Uniform(4, 64)
	some.Rules = []quant.Rule{
		{Class: []quant.Class{quant.Embedding}, Keep: true},
		{Path: []string{"model.layers.3.mlp.down_proj"}, Format: quant.Format{Bits: 6, GroupSize: 32}},
		{Path: []string{"model.layers.*.self_attn.v_proj"}, Layers: []int{1}, Format: quant.Format{Codec: "nvfp4"}},
		{Path: []string{"model.layers.*.self_attn.o_proj"}, Layers: []int{2, 5}, Keep: true},
	}
	return append(modes, mlxMode{"metal", metal, 0, false}, mlxMode{"rules", some, 0, true},
		mlxMode{"f16", quant.Uniform(4, 64), checkpoint.F16, true}, mlxMode{"f32", quant.Uniform(3, 32), checkpoint.F32, true})
}

var mlxRecipes = []string{"mlx-4bit", "mlx-8bit", "mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6"}

func method(r *quant.Recipe, m quant.Method) *quant.Recipe {
	r.Default.Method = m
	return r
}

func preset(t *testing.T, name string, layers int) *quant.Recipe {
	t.Helper()
	r, err := quant.Preset(name, layers)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMLXLoads: stock mlx-lm loads the directory of every mode strictly, its bits
// are those that mx.quantize makes of the source where ours should be, and its most
// likely token is ours at every position.
func TestMLXLoads(t *testing.T) {
	python(t)
	src, err := fixtures.Dir("tiny-gemma3-target")
	if err != nil {
		t.Fatal(err)
	}
	windows := heldout(t, src)
	ids := windows[0]
	var list []string
	for _, id := range ids {
		list = append(list, strconv.Itoa(int(id)))
	}
	dir := t.TempDir()
	modes := mlxModes(t)
	var jobs [][]string
	for _, m := range modes {
		o := mlx.Options{Recipe: m.recipe, DType: m.dtype}
		if m.recipe.Default.Method.Calibrated() {
			o.Calibration = &mlx.Calibration{Windows: windows[1:], Correction: mlx.DefaultCorrection}
		}
		out := filepath.Join(dir, m.name)
		if _, err := mlx.Quantize(t.Context(), src, out, o); err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		job := []string{out, "--fp32", "--ids", strings.Join(list, ","), "--out", out + ".safetensors"}
		if m.exact {
			job = append(job, "--requantize", src)
		}
		jobs = append(jobs, job)
	}
	batch(t, "check_mlx", jobs)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { sameTokens(t, filepath.Join(dir, m.name), ids) })
	}
	t.Logf("%d modes, %d positions each", len(modes), len(ids))
}

// heldout are windows of the text beside a fixture.
func heldout(t *testing.T, dir string) [][]int32 {
	t.Helper()
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := calibration.ReadTexts(filepath.Join(dir, "heldout.txt"))
	if err != nil {
		t.Fatal(err)
	}
	windows, err := calibration.Windows(tok, texts, 96, 9)
	if err != nil {
		t.Fatal(err)
	}
	return windows
}

// sameTokens compares our logits of an MLX directory with recorded ones.
func sameTokens(t *testing.T, dir string, ids []int32) {
	f, err := checkpoint.OpenFile(dir + ".safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recorded, ok := f.Tensor("logits")
	if !ok {
		t.Fatal("mlx-lm has written no logits")
	}
	theirs, err := checkpoint.ReadAll(recorded)
	if err != nil {
		t.Fatal(err)
	}
	ours := logitsOf(t, dir, ids)
	vocab := ours.Cols
	var worst float32
	for i := range ids {
		a, b := theirs[i*vocab:(i+1)*vocab], ours.Row(i)
		for j, v := range a {
			worst = max(worst, v-b[j], b[j]-v)
		}
		at := slices.Index(b, slices.Max(b))
		// Float32 on both sides: tokens apart by less are one as good as the other.
		if top := slices.Max(a); a[at] != top && top-a[at] > 1e-3 {
			t.Errorf("position %d: our first token is %g below mlx-lm's", i, top-a[at])
		}
	}
	if worst > 0.05 {
		t.Errorf("a logit is off by %g", worst)
	}
}

// logitsOf are our logits of an MLX directory after each token.
func logitsOf(t *testing.T, dir string, ids []int32) decoder.Matrix {
	t.Helper()
	q, err := mlx.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	d, err := decoder.New(q.Float32(), q.Config())
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Embed(t.Context(), [][]int32{ids}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Layers(t.Context(), s, decoder.Options{}); err != nil {
		t.Fatal(err)
	}
	norm, err := d.Norm(s)
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.NewHead(nil)
	if err != nil {
		t.Fatal(err)
	}
	ours := decoder.NewMatrix(len(ids), d.Config().Vocab)
	if err := h.Logits(t.Context(), norm, func(row, first int, l []float32) error { copy(ours.Row(row)[first:], l); return nil }); err != nil {
		t.Fatal(err)
	}
	return ours
}

// TestLogitsOfMLX compares what our decoder makes of an MLX directory,
// SMELT_MLX_DIR, with input_ids and logits that mlx-lm has written to the
// safetensors file SMELT_MLX_LOGITS (check_mlx.py --fp32 --out): the same most
// likely token wherever the two best are not close.
func TestLogitsOfMLX(t *testing.T) {
	dir, file := os.Getenv("SMELT_MLX_DIR"), os.Getenv("SMELT_MLX_LOGITS")
	if dir == "" || file == "" {
		t.Skip("SMELT_MLX_DIR or SMELT_MLX_LOGITS is not set")
	}
	f, err := checkpoint.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, _ := f.Tensor("input_ids")
	list, err := checkpoint.ReadInts(x)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	for _, id := range list {
		ids = append(ids, int32(id))
	}
	recorded, ok := f.Tensor("logits")
	if !ok {
		t.Fatal("the file has no logits")
	}
	ours := logitsOf(t, dir, ids)
	vocab := ours.Cols
	want := make([]float32, vocab)
	equal, close := 0, 0
	for i := range ids {
		if err := recorded.ReadFloat32(want, i*vocab); err != nil {
			t.Fatal(err)
		}
		top := slices.Max(want)
		got := slices.Index(ours.Row(i), slices.Max(ours.Row(i)))
		switch {
		case want[got] == top:
			equal++
		case top-want[got] < 0.05:
			close++
		default:
			t.Errorf("position %d: our first token is %g below mlx-lm's", i, top-want[got])
		}
	}
	t.Logf("%d positions: the same first token at %d, one as good at %d", len(ids), equal, close)
}

// TestMLXRecipes: presets give what mlx_lm.convert gives with the recipe of that
// name: the same quantization block, bit for bit the same tensors.
func TestMLXRecipes(t *testing.T) {
	python(t)
	dir := t.TempDir()
	type pair struct{ name, ours, theirs string }
	var pairs []pair
	var jobs [][]string
	for _, fixture := range []string{"tiny-gemma3-target", "llama3-scaled"} {
		src, err := fixtures.Dir(fixture)
		if err != nil {
			t.Fatal(err)
		}
		layers, err := mlx.Layers(src)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range mlxRecipes {
			p := pair{fixture + "/" + name, filepath.Join(dir, fixture, name), filepath.Join(dir, fixture, name+"-mlx")}
			r := preset(t, name, layers)
			job := []string{src, p.theirs, "--bits", "4"}
			switch {
			case name == "mlx-8bit":
				job[3] = "8"
			case strings.HasPrefix(name, "mixed"):
				job = append(job, "--recipe", name)
			}
			if fixture == "llama3-scaled" { // of 96 columns
				r.Default.GroupSize = 32
			}
			job = append(job, "--group", strconv.Itoa(r.Default.GroupSize))
			if err := os.MkdirAll(filepath.Dir(p.ours), 0o755); err != nil {
				t.Fatal(err)
			}
			if _, err := mlx.Quantize(t.Context(), src, p.ours, mlx.Options{Recipe: r}); err != nil {
				t.Fatal(err)
			}
			pairs, jobs = append(pairs, p), append(jobs, job)
		}
	}
	batch(t, "convert_mlx", jobs)
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			if d := cmp.Diff(quantization(t, p.theirs), quantization(t, p.ours)); d != "" {
				t.Errorf("quantization (-mlx-lm +smelt):\n%s", d)
			}
			theirs, ours := tensorBytes(t, p.theirs), tensorBytes(t, p.ours)
			if d := cmp.Diff(slices.Sorted(maps.Keys(theirs)), slices.Sorted(maps.Keys(ours))); d != "" {
				t.Fatalf("tensors (-mlx-lm +smelt):\n%s", d)
			}
			for name, b := range theirs {
				if !bytes.Equal(b, ours[name]) {
					t.Errorf("%s differs", name)
				}
			}
		})
	}
}

// quantization are the blocks of a config, which are equal.
func quantization(t *testing.T, dir string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Quantization, QuantizationConfig map[string]any
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw["quantization"], &c.Quantization); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw["quantization_config"], &c.QuantizationConfig); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c.Quantization, c.QuantizationConfig); d != "" {
		t.Error(d)
	}
	return c.Quantization
}

func tensorBytes(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := map[string][]byte{}
	for _, name := range c.Names() {
		x, _ := c.Tensor(name)
		if out[name], err = checkpoint.ReadBytes(x); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
