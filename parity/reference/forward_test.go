package reference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
)

// patched is a checkpoint with some tensors replaced, added or (nil) removed.
type patched struct {
	Source
	with map[string]checkpoint.Tensor
}

func (p patched) Names() []string {
	var names []string
	for _, name := range p.Source.Names() {
		if t, ok := p.with[name]; !ok || t != nil {
			names = append(names, name)
		}
	}
	for name, t := range p.with {
		if _, ok := p.Source.Tensor(name); !ok && t != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (p patched) Tensor(name string) (checkpoint.Tensor, bool) {
	if t, ok := p.with[name]; ok {
		return t, t != nil
	}
	return p.Source.Tensor(name)
}

func f32(name string, shape []int, data []float32) checkpoint.Tensor {
	return checkpoint.NewFloat32(name, shape, data)
}

func values(t testing.TB, src Source, name string) ([]int, []float32) {
	t.Helper()
	x, ok := src.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	v, err := checkpoint.ReadAll(x)
	if err != nil {
		t.Fatal(err)
	}
	return x.Shape(), v
}

func TestTensorErrors(t *testing.T) {
	g := loadGolden(t, "llama-tied")
	src := openModel(t, g.dir).src
	config := edit(t, "llama-tied", nil)
	const q = "model.layers.1.self_attn.q_proj.weight"
	shape, v := values(t, src, q)
	embedShape, embed := values(t, src, embedName)
	other := slices.Clone(embed)
	other[77]++
	tests := []struct {
		name string
		with map[string]checkpoint.Tensor
		want string // "" for no error
	}{
		{"missing", map[string]checkpoint.Tensor{q: nil}, `tensor "` + q + `" is missing`},
		{"misshaped", map[string]checkpoint.Tensor{q: f32(q, []int{shape[0] / 2, shape[1] * 2}, v)}, "shape is [48 192], config.json asks for [96 96]"},
		{"extra bias", map[string]checkpoint.Tensor{"model.layers.1.self_attn.q_proj.bias": f32("b", []int{96}, make([]float32, 96))}, "nothing in config.json makes use of it"},
		{"layer too many", map[string]checkpoint.Tensor{"model.layers.5.input_layernorm.weight": f32("n", []int{96}, make([]float32, 96))}, "nothing in config.json makes use of it"},
		{"integers", map[string]checkpoint.Tensor{q: checkpoint.NewInt32(q, shape, make([]int32, len(v)))}, "not a plain floating point weight"},
		{"tied head stored", map[string]checkpoint.Tensor{headName: f32(headName, embedShape, embed)}, ""},
		{"tied head of its own", map[string]checkpoint.Tensor{headName: f32(headName, embedShape, other)}, "differs from"},
		{"stored frequencies", map[string]checkpoint.Tensor{"model.layers.0.self_attn.rotary_emb.inv_freq": f32("f", []int{8}, make([]float32, 8))}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(patched{src, tt.with}, config)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestNotFiniteWeights(t *testing.T) {
	g := loadGolden(t, "llama-tied")
	src := openModel(t, g.dir).src
	for _, name := range []string{"model.layers.1.mlp.down_proj.weight", "model.norm.weight", embedName} {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
			shape, v := values(t, src, name)
			v[3] = bad
			m, err := New(patched{src, map[string]checkpoint.Tensor{name: f32(name, shape, v)}}, edit(t, "llama-tied", nil))
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("tensor %q: element 3 is %v", name, bad)
			if _, err := m.Forward(t.Context(), []int32{0, 1}, Options{Head: true}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
	}
}

func TestForwardRefuses(t *testing.T) {
	m := openModel(t, loadGolden(t, "llama-tied").dir)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("sink is full")
	tests := []struct {
		name string
		ctx  context.Context
		ids  []int32
		opts Options
		want string
	}{
		{"no tokens", t.Context(), nil, Options{}, "no tokens"},
		{"token too large", t.Context(), []int32{1, 512}, Options{}, "token 512 at position 1 is outside the vocabulary of 512"},
		{"token negative", t.Context(), []int32{-1}, Options{}, "token -1 at position 0"},
		{"position", t.Context(), []int32{1, 2}, Options{Positions: []int{2}}, "position 2 is outside the 2 tokens"},
		{"canceled", canceled, []int32{1, 2}, Options{}, context.Canceled.Error()},
		{"tile sink", t.Context(), []int32{1, 2}, Options{Head: true, HeadTile: func(int, *Matrix) error { return broken }}, broken.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := m.Forward(tt.ctx, tt.ids, tt.opts)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if r != nil {
				t.Error("a result beside an error")
			}
		})
	}
}

// TestCoresDoNotMatter: the same bits on one core and on many.
func TestCoresDoNotMatter(t *testing.T) {
	g := loadGolden(t, "gemma3")
	m := openModel(t, g.dir)
	run := func(cores int) *Result {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
		r, err := m.Forward(t.Context(), g.ids, Options{Head: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, many := run(1), run(7)
	if !slices.Equal(one.Logits.Data, many.Logits.Data) {
		t.Error("logits depend on the number of cores")
	}
}

// TestCausal: a token changes nothing before it.
func TestCausal(t *testing.T) {
	g := loadGolden(t, "gemma3")
	m := openModel(t, g.dir)
	whole, err := m.Forward(t.Context(), g.ids, Options{Head: true})
	if err != nil {
		t.Fatal(err)
	}
	part, err := m.Forward(t.Context(), g.ids[:50], Options{Head: true})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(part.Logits.Data, whole.Logits.Data[:50*whole.Logits.Cols]) {
		t.Error("logits of a prefix differ from those of the whole")
	}
}

func TestHeadRowsAndTiles(t *testing.T) {
	g := loadGolden(t, "qwen3")
	m := openModel(t, g.dir)
	whole, err := m.Forward(t.Context(), g.ids, Options{Head: true})
	if err != nil {
		t.Fatal(err)
	}
	positions := []int{95, 0, 17}
	rows, err := m.Forward(t.Context(), g.ids, Options{Head: true, Positions: positions})
	if err != nil {
		t.Fatal(err)
	}
	tiled := NewMatrix(len(positions), m.Config().Vocab)
	none, err := m.Forward(t.Context(), g.ids, Options{Head: true, Positions: positions, HeadTile: func(first int, tile *Matrix) error {
		for i := range tile.Rows {
			copy(tiled.Row(i)[first:], tile.Row(i))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if none.Logits != nil {
		t.Error("Logits are set beside HeadTile")
	}
	for i, p := range positions {
		if !slices.Equal(rows.Logits.Row(i), whole.Logits.Row(p)) {
			t.Errorf("row %d differs from position %d of the whole", i, p)
		}
	}
	if !slices.Equal(tiled.Data, rows.Logits.Data) {
		t.Error("tiles differ from the matrix")
	}
}

// TestTaps: every promised name once and in order, and the sums they promise.
func TestTaps(t *testing.T) {
	for name, sandwich := range map[string]bool{"qwen2": false, "gemma3": true} {
		t.Run(name, func(t *testing.T) {
			g := loadGolden(t, name)
			m := openModel(t, g.dir)
			var names []string
			taps := map[string]*Matrix{}
			r, err := m.Forward(t.Context(), g.ids, Options{Head: true, Tap: func(name string, x *Matrix) {
				names = append(names, name)
				taps[name] = x.Clone()
			}})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"embed"}
			for layer := range m.Config().Layers {
				for _, site := range []string{"attn_norm", "q_proj", "k_proj", "q", "k", "v", "attn_ctx", "attn_out", "post_attn_norm",
					"resid_mid", "mlp_norm", "mlp_gate", "mlp_up", "mlp_act", "mlp_out", "post_mlp_norm", "out"} {
					if sandwich || site != "post_attn_norm" && site != "post_mlp_norm" {
						want = append(want, fmt.Sprintf("layers.%d.%s", layer, site))
					}
				}
			}
			want = append(want, "final_norm", "logits")
			if diff := cmp.Diff(want, names); diff != "" {
				t.Fatalf("names (-want +got)\n%s", diff)
			}
			last := "layers.2."
			joins := "mlp_out"
			if sandwich {
				joins = "post_mlp_norm"
			}
			sum := NewMatrix(len(g.ids), m.Config().Hidden)
			add(sum, taps[last+"resid_mid"], taps[last+joins])
			if !slices.Equal(sum.Data, taps[last+"out"].Data) {
				t.Errorf("%sresid_mid + %s is not %sout", last, joins, last)
			}
			if !slices.Equal(taps[last+"out"].Data, r.Hidden[3].Data) || !slices.Equal(taps["final_norm"].Data, r.Norm.Data) {
				t.Error("taps and result differ")
			}
		})
	}
}
