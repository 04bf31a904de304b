package conversion_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/quant"
)

func drafterFixture(t *testing.T, name string) (dir string, o conversion.DrafterOptions) {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	o = conversion.DrafterOptions{Context: 80, NoSync: true}
	switch {
	case strings.HasSuffix(name, "eagle3-llama"):
		o.Taps = []int{1, 3, 6}
	case strings.HasPrefix(name, "gemma4-mtp/"):
		o.Target = filepath.Dir(dir)
	}
	return dir, o
}

// TestDrafterPlan: the plan says what the conversion writes, compressed or not.
func TestDrafterPlan(t *testing.T) {
	for _, name := range append(fixtures.Drafters(), fixtures.TapDrafters()...) {
		for what, r := range map[string]*quant.Recipe{
			"fp16": nil,
			"int4": {Target: quant.TargetCoreML, KeepIndivisible: true, Default: quant.Format{Codec: "linear", Bits: 4, GroupSize: 16, Granularity: "block"}},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				dir, o := drafterFixture(t, name)
				o.Quantize = r
				p, err := conversion.PlanDrafter(t.Context(), dir, o)
				if err != nil {
					t.Fatal(err)
				}
				out := filepath.Join(t.TempDir(), "drafter")
				rep, err := conversion.ConvertDrafter(t.Context(), dir, out, o)
				if err != nil {
					t.Fatal(err)
				}
				if d := p.Weights - rep.Weights; d < -64 || d > 64 {
					t.Errorf("planned %d bytes of weights, wrote %d", p.Weights, rep.Weights)
				}
				if len(p.Functions) != len(rep.Contract().Functions) {
					t.Errorf("planned %d functions, wrote %d", len(p.Functions), len(rep.Contract().Functions))
				}
				if (rep.Compressed != nil) != (r != nil) || len(p.Compressed) != len(rep.Compressed) {
					t.Errorf("compressed classes: planned %d, wrote %d", len(p.Compressed), len(rep.Compressed))
				}
				var size int64
				for i, c := range rep.Compressed {
					if size += c.Bytes; c.Bytes != p.Compressed[i].Bytes || c.RelativeMSE <= 0 {
						t.Errorf("%+v, planned %+v", c, p.Compressed[i])
					}
				}
				var tables int64
				for _, x := range p.Tables {
					info, err := os.Stat(filepath.Join(out, x.File))
					if err != nil || info.Size() < x.Bytes || info.Size() > x.Bytes+1024 {
						t.Errorf("%s is planned with %d bytes: %v, %v", x.File, x.Bytes, info, err)
					}
					tables += x.Bytes
				}
				if p.Total <= 0 || p.Total > 4*(p.Weights+tables)+1<<20 {
					t.Errorf("a draft reads %d bytes of a package of %d", p.Total, p.Weights)
				}
			})
		}
	}
}

// TestDrafterSharesTables: tables that the target has too are found, and those
// of embeddings not written.
func TestDrafterSharesTables(t *testing.T) {
	target, err := fixtures.Dir("llama-tied")
	if err != nil {
		t.Fatal(err)
	}
	src, err := checkpoint.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	table, ok := src.Tensor("model.embed_tokens.weight")
	if !ok {
		t.Fatal("no table")
	}
	dir, o := drafterFixture(t, "drafters/mtp-modules")
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	own, _ := ck.Tensor("embed_tokens.weight")
	if own.Shape()[0] != table.Shape()[0] || own.Shape()[1] != table.Shape()[1] {
		t.Skipf("shapes %v and %v", own.Shape(), table.Shape())
	}
	for _, same := range []bool{false, true} {
		to := t.TempDir()
		var out []checkpoint.Tensor
		for _, n := range ck.Names() {
			x, _ := ck.Tensor(n)
			if n == "embed_tokens.weight" && same {
				x = checkpoint.Rename(table, n)
			}
			out = append(out, x)
		}
		config, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, "config.json"), config, 0o644)
		}
		if err == nil {
			err = checkpoint.WriteFile(filepath.Join(to, "model.safetensors"), out, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.Target = target
		p, err := conversion.PlanDrafter(t.Context(), to, o)
		if err != nil {
			t.Fatal(err)
		}
		if !p.TargetKnown || same && (len(p.Copies) != 2 || p.Copies[0].Written || !p.Copies[1].Written || len(p.Tables) != 0) || !same && (len(p.Copies) != 0 || len(p.Tables) != 1) {
			t.Errorf("same %v: copies %+v, tables %+v", same, p.Copies, p.Tables)
		}
	}
}

var near25 = regexp.MustCompile(`^modules_list\.0\.input_proj\.weight: columns of the 2 inputs side by side differ in size ×2[4-6] in a row`)

// TestDrafterHalves: columns of two inputs that differ greatly in size are not to
// get one scale a row of few bits.
func TestDrafterHalves(t *testing.T) {
	dir, o := drafterFixture(t, "drafters/mtp-modules")
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	to := t.TempDir()
	var out []checkpoint.Tensor
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range ck.Names() {
		x, _ := ck.Tensor(n)
		if n == "modules_list.0.input_proj.weight" {
			v := make([]float32, x.Shape()[0]*x.Shape()[1])
			for i := range v {
				v[i] = float32(rng.NormFloat64()) / 16
				if i%x.Shape()[1] >= x.Shape()[1]/2 {
					v[i] /= 25
				}
			}
			x = checkpoint.NewFloat32(n, x.Shape(), v)
		}
		out = append(out, x)
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "config.json"), config, 0o644)
	}
	if err == nil {
		err = checkpoint.WriteFile(filepath.Join(to, "model.safetensors"), out, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		f    quant.Format
		want int
	}{
		{quant.Format{Codec: "linear", Bits: 4, Granularity: "channel"}, 1},
		{quant.Format{Codec: "palette", Bits: 4}, 1},
		{quant.Format{Codec: "linear", Bits: 8, Granularity: "channel"}, 0},
		{quant.Format{Codec: "linear", Bits: 4, GroupSize: 32, Granularity: "block"}, 0},
	} {
		o.Quantize = &quant.Recipe{Target: quant.TargetCoreML, Default: tt.f}
		p, err := conversion.PlanDrafter(t.Context(), to, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Warnings) != tt.want || tt.want > 0 && !near25.MatchString(p.Warnings[0]) {
			t.Errorf("%s: warnings %q", tt.f.Describe(), p.Warnings)
		}
	}
}

// TestDrafterRecipes: what a drafter cannot be given is refused before anything
// is written; a confidence head is kept whatever the recipe says.
func TestDrafterRecipes(t *testing.T) {
	dir, o := drafterFixture(t, "drafters/dspark-forward")
	w8 := quant.Format{Codec: "linear", Bits: 8, Granularity: "channel"}
	for _, tt := range []struct {
		name, compute string
		r             quant.Recipe
		want          string
	}{
		{"f32", "fp32", quant.Recipe{Target: quant.TargetCoreML, Default: w8}, "compressed weights are fp16"},
		{"another target", "", quant.Recipe{Target: quant.TargetMLX, Default: quant.Format{Codec: "affine", Bits: 4, GroupSize: 16}}, "recipe is for mlx"},
		{"blocks", "", quant.Recipe{Target: quant.TargetCoreML, Default: quant.Format{Codec: "linear", Bits: 4, GroupSize: 32, Granularity: "block"}}, "markov_head.markov_w1"},
		{"calibrated", "", quant.Recipe{Target: quant.TargetCoreML, Default: quant.Format{Codec: "linear", Bits: 8, Granularity: "channel", Method: quant.Best}}, "learns from a text"},
		{"no such tensor", "", quant.Recipe{Target: quant.TargetCoreML, Default: w8, Rules: []quant.Rule{{Class: []quant.Class{quant.Value}, Keep: true}}}, "applies to no tensor"},
		{"good", "", quant.Recipe{Target: quant.TargetCoreML, Default: w8, Rules: []quant.Rule{{Path: []string{"confidence_head.proj"}, Format: w8}}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := o
			o.Quantize, o.Compute = &tt.r, tt.compute
			out := filepath.Join(t.TempDir(), "out")
			rep, err := conversion.ConvertDrafter(t.Context(), dir, out, o)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want an error with %q", err, tt.want)
				}
				if _, err := os.Stat(out); err == nil {
					t.Error("something was written")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(rep.Contract().Quantization), "confidence_head.**") {
				t.Errorf("the contract does not say what was kept: %s", rep.Contract().Quantization)
			}
		})
	}
}
