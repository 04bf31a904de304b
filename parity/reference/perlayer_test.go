package reference

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
)

// TestPerLayerFaults: mistakes that the norm behind them hides from the logits
// stand out in the combined inputs.
func TestPerLayerFaults(t *testing.T) {
	g := loadGolden(t, "gemma4-e2b")
	intact := openModel(t, g.dir)
	want := g.matrix(t, "per_layer_inputs")
	for name, inject := range map[string]func(p *PerLayer){
		"token scale":      func(p *PerLayer) { p.TokenScale = 1 },
		"projection scale": func(p *PerLayer) { p.ProjectionScale = 1 },
		"combine scale":    func(p *PerLayer) { p.CombineScale = 1 },
		"no token part":    func(p *PerLayer) { p.TokenScale = 0 },
	} {
		m := &Model{config: intact.config, src: intact.src}
		inject(&m.config.PerLayer)
		r, err := m.Forward(t.Context(), g.ids, Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := maxDiff(t, r.PerLayerInputs, want)
		t.Logf("%s: max |Δ| %.3g", name, d)
		// A dropped projection scale only moves the norm's epsilon.
		if d < 1e-4 {
			t.Errorf("%s: per_layer_inputs move by %g only", name, d)
		}
	}
}

// metered counts the elements read of one tensor.
type metered struct {
	checkpoint.Tensor
	read *int
}

func (m metered) ReadFloat32(dst []float32, off int) error {
	*m.read += len(dst)
	return m.Tensor.ReadFloat32(dst, off)
}

// TestPerLayerTableRows: only the rows of the tokens are read of a table that
// has 2.3 billion elements in a full-size model.
func TestPerLayerTableRows(t *testing.T) {
	g := loadGolden(t, "gemma4-e2b")
	src := openModel(t, g.dir).src
	table, _ := src.Tensor(perLayerTableName)
	read := 0
	m, err := New(patched{src, map[string]checkpoint.Tensor{perLayerTableName: metered{table, &read}}}, edit(t, "gemma4-e2b", nil))
	if err != nil {
		t.Fatal(err)
	}
	if read != 0 {
		t.Errorf("New reads %d elements", read)
	}
	if _, err := m.Forward(t.Context(), []int32{3, 1, 4}, Options{Head: true}); err != nil {
		t.Fatal(err)
	}
	if want := 3 * 10 * 16; read != want {
		t.Errorf("%d elements read for 3 tokens, want %d", read, want)
	}

	config := edit(t, "gemma4-e2b", map[string]any{"vocab_size_per_layer_input": 500})
	shape, v := values(t, src, perLayerTableName)
	m, err = New(patched{src, map[string]checkpoint.Tensor{perLayerTableName: f32(perLayerTableName, []int{500, shape[1]}, v[:500*shape[1]])}}, config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Forward(t.Context(), []int32{7, 505}, Options{}); err == nil || !strings.Contains(err.Error(), "token 505 at position 1 is outside the per-layer vocabulary of 500") {
		t.Errorf("a token without a row: %v", err)
	}
}

// TestGemma4Taps: the names a pass promises, and how they add up.
func TestGemma4Taps(t *testing.T) {
	g := loadGolden(t, "gemma4-e2b")
	m := openModel(t, g.dir)
	var names []string
	taps := map[string]*Matrix{}
	r, err := m.Forward(t.Context(), g.ids, Options{Head: true, KV: true, Tap: func(name string, x *Matrix) {
		names = append(names, name)
		taps[name] = x.Clone()
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"embed", "per_layer_token", "per_layer_projected", "per_layer_inputs"}
	for layer := range 10 {
		for _, site := range []string{"attn_norm", "q_proj", "k_proj", "v_proj", "q", "k", "v", "attn_ctx", "attn_out", "post_attn_norm",
			"resid_mid", "mlp_norm", "mlp_gate", "mlp_up", "mlp_act", "mlp_out", "post_mlp_norm", "resid_mlp",
			"ple_gate", "ple_act", "ple_out", "post_ple_norm", "resid_ple", "out"} {
			if layer < 5 || !slices.Contains([]string{"k_proj", "v_proj", "k", "v"}, site) {
				want = append(want, fmt.Sprintf("layers.%d.%s", layer, site))
			}
		}
	}
	want = append(want, "final_norm", "logits")
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("names (-want +got)\n%s", diff)
	}
	const T, width = 112, 16
	for _, layer := range []int{2, 9} {
		at := func(site string) *Matrix { return taps[fmt.Sprintf("layers.%d.%s", layer, site)] }
		sum := NewMatrix(T, 80)
		add(sum, at("resid_mid"), at("post_mlp_norm"))
		if !slices.Equal(sum.Data, at("resid_mlp").Data) {
			t.Errorf("layer %d: resid_mid + post_mlp_norm is not resid_mlp", layer)
		}
		add(sum, at("resid_mlp"), at("post_ple_norm"))
		if !slices.Equal(sum.Data, at("resid_ple").Data) {
			t.Errorf("layer %d: resid_mlp + post_ple_norm is not resid_ple", layer)
		}
		_, scalar := values(t, m.src, fmt.Sprintf("model.layers.%d.layer_scalar", layer))
		scale(sum, scalar[0])
		if !slices.Equal(sum.Data, at("out").Data) || scalar[0] == 1 {
			t.Errorf("layer %d: resid_ple·%v is not out", layer, scalar)
		}
		for _, p := range []int{0, 70} {
			for i, x := range at("ple_gate").Row(p) {
				want := float32(geluTanh(float64(x))) * taps["per_layer_inputs"].Row(p)[layer*width+i]
				if got := at("ple_act").Row(p)[i]; got != want {
					t.Fatalf("layer %d: ple_act is %v, want %v", layer, got, want)
				}
			}
		}
	}
	for kind, layer := range map[LayerKind]int{SlidingAttention: 3, FullAttention: 4} {
		kv := r.KV[kind]
		if !slices.Equal(kv.K.Data, taps[fmt.Sprintf("layers.%d.k", layer)].Data) || !slices.Equal(kv.V.Data, taps[fmt.Sprintf("layers.%d.v", layer)].Data) {
			t.Errorf("Result.KV of %v is not layer %d's", kind, layer)
		}
	}
	if !slices.Equal(r.PerLayerInputs.Data, taps["per_layer_inputs"].Data) {
		t.Error("Result.PerLayerInputs and its tap differ")
	}
}
