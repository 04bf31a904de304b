package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/smelt-go/smelt/checkpoint"
)

// Names of the tensors of a text-only checkpoint.
const (
	embedName = "model.embed_tokens.weight"
	normName  = "model.norm.weight"
	headName  = "lm_head.weight"

	perLayerTableName      = "model.embed_tokens_per_layer.weight"
	perLayerProjectionName = "model.per_layer_model_projection.weight"
	perLayerNormName       = "model.per_layer_projection_norm.weight"
)

func layerName(layer int, suffix string) string {
	return fmt.Sprintf("model.layers.%d.%s", layer, suffix)
}

// tensors returns the name and shape of every tensor the decoder reads, and of
// those a checkpoint may have beside them: published files keep k and v of
// layers that read another layer's.
func (c *Config) tensors() (used, unused map[string][]int) {
	used, unused = map[string][]int{
		embedName: {c.Vocab, c.Hidden},
		normName:  {c.Hidden},
	}, map[string][]int{}
	if !c.TiedHead {
		used[headName] = []int{c.Vocab, c.Hidden}
	}
	width := c.PerLayer.Width
	if width > 0 {
		used[perLayerTableName] = []int{c.PerLayer.Vocab, c.Layers * width}
		used[perLayerProjectionName] = []int{c.Layers * width, c.Hidden}
		used[perLayerNormName] = []int{width}
	}
	for layer := range c.Layers {
		l := c.Layer(layer)
		q, kv := c.Heads*l.HeadDim, l.KVHeads*l.HeadDim
		list := used
		put := func(module string, bias bool, shape ...int) {
			list[layerName(layer, module+".weight")] = shape
			if bias {
				list[layerName(layer, module+".bias")] = shape[:1]
			}
		}
		put("self_attn.q_proj", c.QKVBias, q, c.Hidden)
		put("self_attn.o_proj", c.OutBias, c.Hidden, q)
		put("mlp.gate_proj", c.MLPBias, l.Intermediate, c.Hidden)
		put("mlp.up_proj", c.MLPBias, l.Intermediate, c.Hidden)
		put("mlp.down_proj", c.MLPBias, c.Hidden, l.Intermediate)
		put("input_layernorm", false, c.Hidden)
		put("post_attention_layernorm", false, c.Hidden)
		if c.QKNorm {
			put("self_attn.q_norm", false, l.HeadDim)
		}
		if width > 0 {
			put("per_layer_input_gate", false, width, c.Hidden)
			put("per_layer_projection", false, c.Hidden, width)
			put("post_per_layer_input_norm", false, c.Hidden)
		}
		if c.LayerScalar {
			used[layerName(layer, "layer_scalar")] = []int{1}
		}
		if c.Sandwich {
			put("pre_feedforward_layernorm", false, c.Hidden)
			put("post_feedforward_layernorm", false, c.Hidden)
		}
		if l.KVSource != layer {
			list = unused
		}
		put("self_attn.k_proj", c.QKVBias, kv, c.Hidden)
		put("self_attn.v_proj", c.QKVBias, kv, c.Hidden)
		if c.QKNorm {
			put("self_attn.k_norm", false, l.HeadDim)
		}
	}
	return used, unused
}

// checkTensors compares what src holds with what the decoder reads.
func checkTensors(src Source, want, unused map[string][]int) error {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		t, ok := src.Tensor(name)
		switch {
		case !ok && name == headName:
			return fmt.Errorf("reference: tensor %q is missing (config.json says the head is not tied to the embedding: tie_word_embeddings)", name)
		case !ok:
			return fmt.Errorf("reference: tensor %q is missing", name)
		}
		if err := checkShape(t, want[name]); err != nil {
			return err
		}
		switch t.DType() {
		case checkpoint.F64, checkpoint.F32, checkpoint.F16, checkpoint.BF16:
			if name == tokenOrderName {
				return fmt.Errorf("reference: tensor %q: dtype %v holds no token ids", name, t.DType())
			}
		case checkpoint.I32, checkpoint.I64:
			if name == tokenOrderName {
				continue
			}
			fallthrough
		default:
			return fmt.Errorf("reference: tensor %q: dtype %v is not a plain floating point weight", name, t.DType())
		}
	}
	for _, name := range src.Names() {
		if _, ok := want[name]; ok || strings.HasSuffix(name, ".rotary_emb.inv_freq") {
			continue
		}
		if shape, ok := unused[name]; ok {
			t, _ := src.Tensor(name)
			if err := checkShape(t, shape); err != nil {
				return err
			}
			continue
		}
		if name == headName {
			if err := sameTensors(src, headName, embedName); err != nil {
				return err
			}
			continue
		}
		return fmt.Errorf("reference: tensor %q: nothing in config.json makes use of it", name)
	}
	return nil
}

func checkShape(t checkpoint.Tensor, want []int) error {
	name, hint := t.Name(), ""
	switch name {
	case perLayerTableName:
		hint = " (vocab_size_per_layer_input × num_hidden_layers·hidden_size_per_layer_input)"
	case perLayerProjectionName:
		hint = " (num_hidden_layers·hidden_size_per_layer_input × hidden_size)"
	}
	if !slices.Equal(t.Shape(), want) {
		return fmt.Errorf("reference: tensor %q: shape is %v, config.json asks for %v%s", name, t.Shape(), want, hint)
	}
	return nil
}

// sameTensors tells whether a head that is stored although it is tied holds
// the embedding's values.
func sameTensors(src Source, stored, tied string) error {
	a, _ := src.Tensor(stored)
	b, _ := src.Tensor(tied)
	differ := fmt.Errorf("reference: tensor %q differs from %q although config.json ties them (tie_word_embeddings)", stored, tied)
	if !slices.Equal(a.Shape(), b.Shape()) {
		return differ
	}
	const step = 1 << 16
	va, vb := make([]float32, step), make([]float32, step)
	for at, n := 0, checkpoint.NumElements(a); at < n; at += step {
		va, vb := va[:min(step, n-at)], vb[:min(step, n-at)]
		if err := either(a.ReadFloat32(va, at), b.ReadFloat32(vb, at)); err != nil {
			return fmt.Errorf("reference: %w", err)
		}
		if !slices.Equal(va, vb) {
			return differ
		}
	}
	return nil
}

// weightReader widens one tensor after another into the same memory.
type weightReader struct {
	src    Source
	buffer []float32
}

// matrix returns rows [first, first+rows) of a stored matrix. The result is
// valid until the next call.
func (r *weightReader) matrix(name string, first, rows, cols int) (*Matrix, error) {
	if n := rows * cols; cap(r.buffer) < n {
		r.buffer = make([]float32, n)
	}
	m := &Matrix{Rows: rows, Cols: cols, Data: r.buffer[:rows*cols]}
	return m, r.read(name, m.Data, first*cols)
}

// vector returns a whole stored vector in memory of its own.
func (r *weightReader) vector(name string, n int) ([]float32, error) {
	v := make([]float32, n)
	return v, r.read(name, v, 0)
}

// read widens len(dst) elements from offset on and refuses those that are not
// finite.
func (r *weightReader) read(name string, dst []float32, offset int) error {
	t, ok := r.src.Tensor(name)
	if !ok {
		return fmt.Errorf("reference: tensor %q is missing", name)
	}
	const grain = 1 << 17
	failures := make([]error, (len(dst)+grain-1)/grain)
	var failed atomic.Bool
	parallel(len(dst), grain, func(lo, hi int) {
		if failed.Load() {
			return
		}
		err := t.ReadFloat32(dst[lo:hi], offset+lo)
		if err != nil {
			err = fmt.Errorf("reference: %w", err)
		} else if i := slices.IndexFunc(dst[lo:hi], func(x float32) bool { return x-x != 0 }); i >= 0 {
			err = fmt.Errorf("reference: tensor %q: element %d is %v (the checkpoint is damaged)", name, offset+lo+i, dst[lo+i])
		}
		if err != nil {
			failures[lo/grain] = err
			failed.Store(true)
		}
	})
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}
