package mlx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/quant"
)

// DrafterOptions configures QuantizeDrafter.
type DrafterOptions struct {
	Options
	// Target is the checkpoint directory of the target, to be looked through for
	// the tables that the drafter copied from it. "": unknown.
	Target string
}

// Copy is a table that exists elsewhere.
type Copy struct {
	Tensor string `json:"tensor"`
	Of     string `json:"of"` // the target's tensor, or another one of the drafter
	Bytes  int64  `json:"bytes"`
}

// DrafterReport is what QuantizeDrafter did.
type DrafterReport struct {
	*Report
	Tensors int      `json:"tensors"`
	Kept    []string `json:"kept_by_policy"`
	// Copies need not be stored: a host that has the target has them. They are
	// quantized as the recipe says all the same.
	Copies []Copy `json:"copies,omitempty"`
	// Projected is the largest magnitude of the context that the written drafter
	// makes of taps of one: a sign of life.
	Projected float64 `json:"projected_context_max_abs"`
}

// drafterPolicy keeps what decides how many drafts are verified. Norms, biases
// and scalars are never quantized.
var drafterPolicy = quant.Rule{Path: []string{"confidence_head.**"}, Keep: true, Optional: true}

// QuantizeDrafter writes the DSpark drafter in src to out in the formats of
// o.Recipe. It checks that the tensors are exactly those that config.json
// implies, 74 for five layers, keeps the confidence head, norms and scalars,
// and reads back what it wrote. Other layouts and quantized sources are errors.
func QuantizeDrafter(ctx context.Context, src, out string, o DrafterOptions) (*DrafterReport, error) {
	c, err := readConfig(src)
	if err != nil {
		return nil, err
	}
	if why := quantized(c); why != "" {
		return nil, fmt.Errorf("mlx: %s is quantized already: %s (quantize the original drafter)", src, why)
	}
	want, err := dsparkLayout(c)
	if err != nil {
		return nil, fmt.Errorf("mlx: %s: %w", src, err)
	}
	ck, err := checkpoint.Open(src)
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	if err := want.check(ck); err != nil {
		return nil, fmt.Errorf("mlx: %s: %w", src, err)
	}
	rep := &DrafterReport{Tensors: len(want.shapes)}
	if rep.Copies, err = copies(ck, o.Target); err != nil {
		return nil, err
	}
	if o.Recipe == nil {
		return nil, fmt.Errorf("mlx: no recipe is given")
	}
	recipe := *o.Recipe
	recipe.Rules = append([]quant.Rule{drafterPolicy}, recipe.Rules...)
	o.Recipe = &recipe
	if rep.Report, err = Quantize(ctx, src, out, o.Options); err != nil {
		return nil, err
	}
	for _, m := range rep.Modules {
		if m.RelativeMSE == nil {
			rep.Kept = append(rep.Kept, m.Path)
		}
	}
	if rep.Projected, err = smoke(out, want); err != nil {
		return nil, errors.Join(fmt.Errorf("mlx: what was written does not load: %w", err), os.RemoveAll(out))
	}
	return rep, nil
}

// layout is the set of tensors of a drafter.
type layout struct {
	shapes         map[string][]int
	hidden, tapped int
}

// dsparkLayout works out the tensors of a DSpark drafter.
func dsparkLayout(c *object) (*layout, error) {
	classes, _ := c.values["architectures"].([]any)
	if len(classes) != 1 || classes[0] != "Gemma4DSparkModel" {
		return nil, fmt.Errorf("config.json names %v; only the layout of Gemma4DSparkModel can be quantized as a drafter (an ordinary model needs no --drafter)", classes)
	}
	var missing []string
	number := func(key string) int {
		n, ok := c.integer(key)
		if !ok || n < 1 {
			missing = append(missing, key)
		}
		return n
	}
	h, layers, inner, vocab := number("hidden_size"), number("num_hidden_layers"), number("intermediate_size"), number("vocab_size")
	heads, kv, dim := number("num_attention_heads"), number("num_global_key_value_heads"), number("global_head_dim")
	number("block_size")
	taps, _ := c.values["target_layer_ids"].([]any)
	if len(taps) == 0 {
		missing = append(missing, "target_layer_ids")
	}
	l := &layout{shapes: map[string][]int{}, hidden: h, tapped: len(taps) * h}
	s := l.shapes
	rank := 0
	switch kind, n := c.str("markov_head_type"), 0; {
	case c.values["markov_rank"] == nil:
	default:
		if n, _ = c.integer("markov_rank"); n > 0 {
			if kind != "" && kind != "vanilla" {
				return nil, fmt.Errorf("markov_head_type is %q: only vanilla is known", kind)
			}
			rank = n
			s["markov_head.markov_w1.weight"], s["markov_head.markov_w2.weight"] = []int{vocab, n}, []int{vocab, n}
		}
	}
	if on, _ := c.values["enable_confidence_head"].(bool); on {
		in := h
		if with, _ := c.values["confidence_head_with_markov"].(bool); with {
			in += rank
		}
		s["confidence_head.proj.weight"], s["confidence_head.proj.bias"] = []int{1, in}, []int{1}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("config.json lacks %s, from which the shapes of a DSpark drafter follow", strings.Join(missing, ", "))
	}
	s["embed_tokens.weight"], s["lm_head.weight"] = []int{vocab, h}, []int{vocab, h}
	s["fc.weight"], s["hidden_norm.weight"], s["norm.weight"] = []int{h, l.tapped}, []int{h}, []int{h}
	same, _ := c.values["attention_k_eq_v"].(bool)
	for i := range layers {
		p := fmt.Sprintf("layers.%d.", i)
		for _, n := range []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"} {
			s[p+n+".weight"] = []int{h}
		}
		s[p+"layer_scalar"] = []int{1}
		s[p+"mlp.gate_proj.weight"], s[p+"mlp.up_proj.weight"], s[p+"mlp.down_proj.weight"] = []int{inner, h}, []int{inner, h}, []int{h, inner}
		s[p+"self_attn.q_proj.weight"], s[p+"self_attn.o_proj.weight"] = []int{heads * dim, h}, []int{h, heads * dim}
		s[p+"self_attn.k_proj.weight"] = []int{kv * dim, h}
		if !same {
			s[p+"self_attn.v_proj.weight"] = []int{kv * dim, h}
		}
		s[p+"self_attn.q_norm.weight"], s[p+"self_attn.k_norm.weight"] = []int{dim}, []int{dim}
	}
	return l, nil
}

// check compares the layout with what there is.
func (l *layout) check(src checkpoint.Source) error {
	var bad []string
	for _, name := range src.Names() {
		if _, ok := l.shapes[name]; !ok {
			bad = append(bad, fmt.Sprintf("tensor %s is none of a DSpark drafter's", name))
		}
	}
	names := make([]string, 0, len(l.shapes))
	for name := range l.shapes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t, ok := src.Tensor(name)
		switch {
		case !ok:
			bad = append(bad, fmt.Sprintf("tensor %s is missing", name))
		case !slices.Equal(t.Shape(), l.shapes[name]):
			bad = append(bad, fmt.Sprintf("tensor %s is %v, config.json makes it %v", name, t.Shape(), l.shapes[name]))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	if n := len(bad); n > 6 {
		bad = append(bad[:6], fmt.Sprintf("and %d more", n-6))
	}
	return fmt.Errorf("not the %d tensors of a DSpark drafter: %s", len(l.shapes), strings.Join(bad, "; "))
}

// copies finds tables of the drafter that are stored elsewhere as well, byte by
// byte.
func copies(ck *checkpoint.Checkpoint, target string) ([]Copy, error) {
	var out []Copy
	embed, _ := ck.Tensor("embed_tokens.weight")
	head, _ := ck.Tensor("lm_head.weight")
	equal, err := sameBytes(embed, head)
	if err != nil {
		return nil, err
	}
	if equal {
		out = append(out, Copy{"lm_head.weight", "embed_tokens.weight", checkpoint.NumBytes(head)})
	}
	if target == "" {
		return out, nil
	}
	other, err := checkpoint.Open(target)
	if err != nil {
		return nil, fmt.Errorf("mlx: target: %w", err)
	}
	defer other.Close()
	view := checkpoint.TextView(other)
	for _, t := range []checkpoint.Tensor{embed, head} {
		for _, name := range []string{"model.embed_tokens.weight", "lm_head.weight"} {
			x, ok := view.Tensor(name)
			if !ok {
				continue
			}
			if equal, err = sameBytes(t, x); err != nil {
				return nil, err
			}
			if equal {
				out = append(out, Copy{t.Name(), filepath.Base(filepath.Clean(target)) + ": " + name, checkpoint.NumBytes(t)})
				break
			}
		}
	}
	return out, nil
}

// sameBytes compares two tensors piece by piece.
func sameBytes(a, b checkpoint.Tensor) (bool, error) {
	if a.DType() != b.DType() || !slices.Equal(a.Shape(), b.Shape()) {
		return false, nil
	}
	const piece = 1 << 20
	x, y := make([]byte, piece), make([]byte, piece)
	for off, n := int64(0), checkpoint.NumBytes(a); off < n; off += piece {
		x, y := x[:min(piece, n-off)], y[:min(piece, n-off)]
		if err := errors.Join(checkpoint.ReadRaw(a, x, off), checkpoint.ReadRaw(b, y, off)); err != nil {
			return false, err
		}
		if !bytes.Equal(x, y) {
			return false, nil
		}
	}
	return true, nil
}

// smoke opens what was written, checks names and shapes of the decoded tensors,
// that all of them are finite, and projects taps of one.
func smoke(dir string, l *layout) (float64, error) {
	d, err := Open(dir)
	if errors.Is(err, ErrNotQuantized) {
		return 0, fmt.Errorf("%s: nothing was quantized (does the recipe keep everything?)", dir)
	}
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := l.check(d); err != nil {
		return 0, err
	}
	src := d.Float32()
	for _, name := range src.Names() {
		t, _ := src.Tensor(name)
		if err := allFinite(t); err != nil {
			return 0, err
		}
	}
	fc, _ := src.Tensor("fc.weight")
	w, err := checkpoint.ReadAll(fc)
	if err != nil {
		return 0, err
	}
	peak := 0.0
	for r := range l.hidden {
		sum := 0.0
		for _, v := range w[r*l.tapped : (r+1)*l.tapped] {
			sum += float64(v)
		}
		peak = max(peak, math.Abs(sum))
	}
	if peak == 0 {
		return 0, fmt.Errorf("%s: the context that fc projects is zero", dir)
	}
	return peak, nil
}

func allFinite(t checkpoint.Tensor) error {
	buf := make([]float32, 1<<16)
	for off, n := 0, checkpoint.NumElements(t); off < n; off += len(buf) {
		f := buf[:min(len(buf), n-off)]
		if err := t.ReadFloat32(f, off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for _, v := range f {
			if v != v || math.IsInf(float64(v), 0) {
				return fmt.Errorf("tensor %s has elements that are not finite", t.Name())
			}
		}
	}
	return nil
}
