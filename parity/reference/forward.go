package reference

import (
	"context"
	"fmt"
	"slices"
)

// Tap receives an intermediate by the name listed in the package
// documentation. The matrix is valid during the call only; Clone keeps it.
type Tap func(name string, m *Matrix)

// Options says what a forward pass delivers beyond hidden states.
type Options struct {
	// Head asks for logits.
	Head bool
	// Positions are the rows logits are wanted for, in this order; nil means
	// all. A row of a large vocabulary takes a megabyte.
	Positions []int
	// HeadTile, if set, receives the logits in pieces instead of
	// Result.Logits: columns first to first+tile.Cols of the vocabulary, one
	// row for each of Positions, valid during the call only. An error stops the
	// pass.
	HeadTile func(first int, tile *Matrix) error
	// Tap, if set, is called for every named intermediate. With HeadTile there
	// is no "logits".
	Tap Tap
	// KV asks for Result.KV.
	KV bool
	// Product, if set, multiplies by matrices in place of the plain loops.
	Product Product
}

// KV holds keys (after their norm and rope) and values (after their norm) of
// one layer: [T, kv_heads·head_dim] each.
type KV struct{ K, V *Matrix }

// Result of a forward pass over T tokens.
type Result struct {
	Logits *Matrix   // [len(Positions), vocab]; nil without Options.Head
	Hidden []*Matrix // [0] embedding output, [i] residual stream after layer i−1; each [T, hidden]
	Norm   *Matrix   // after the final norm [T, hidden]

	// PerLayerInputs is what the layers receive beside the residual stream
	// [T, layers·width], layer by layer; nil without per-layer embeddings.
	PerLayerInputs *Matrix
	// KV has, by kind, keys and values of the last layer that computes its own:
	// what sharing layers and drafters read. Nil without Options.KV.
	KV map[LayerKind]KV
}

// Forward runs one causal pass over ids at positions 0 to len(ids)−1, without
// a cache.
func (m *Model) Forward(ctx context.Context, ids []int32, opts Options) (*Result, error) {
	result := &Result{}
	tap := func(name string, x *Matrix) {
		if opts.Tap != nil {
			opts.Tap(name, x)
		}
	}
	for _, p := range opts.Positions {
		if p < 0 || p >= len(ids) {
			return nil, fmt.Errorf("reference: position %d is outside the %d tokens", p, len(ids))
		}
	}
	p := m.pass(fastDot)
	p.tap, p.product = tap, opts.Product
	if opts.KV {
		result.KV = map[LayerKind]KV{}
	}
	p.kinds = result.KV
	err := p.run(ctx, ids, func(x *Matrix) { result.Hidden = append(result.Hidden, x.Clone()) })
	if err != nil {
		return nil, err
	}
	result.Norm, result.PerLayerInputs = p.norm, p.perLayer
	if opts.Head {
		if result.Logits, err = p.head(ctx, opts); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// pass is one forward pass: the weights in flight and the activations.
type pass struct {
	config   Config
	weights  weightReader
	dot      dotFunc
	product  Product // nil: widen the whole matrix and use dot
	tap      Tap
	skipNorm func(name string) bool
	scores   func(layer int, peak, bound float32) // may be nil
	err      error

	ropes map[LayerKind]ropeTable
	// span says which keys a query row sees on a layer of a kind.
	span func(kind LayerKind) func(t int) (first, end int)
	// kept are keys and values that later layers read, by layer.
	kept map[int]KV
	// kinds, if not nil, keeps those of the last layer of each kind; or it
	// delivers them, where Config.KVSource is TargetKV.
	kinds map[LayerKind]KV

	x, norm, sub *Matrix // [T, hidden]: residual stream, normed input, sublayer output
	q, context   *Matrix // [T, heads·headDim]
	k, v         *Matrix // [T, kvHeads·headDim]
	gate, up     *Matrix // [T, intermediate]
	perLayer     *Matrix // [T, layers·width]
	layer        int     // the layer that runs
	activation   func(float64) float64
}

func (m *Model) pass(dot dotFunc) *pass {
	return &pass{config: m.config, weights: weightReader{src: m.src}, dot: dot, skipNorm: m.skipNorm, tap: func(string, *Matrix) {}}
}

// begin makes room for T tokens at positions from first on.
func (p *pass) begin(first, T int) {
	c := &p.config
	p.activation = activations[c.Activation]
	p.ropes = map[LayerKind]ropeTable{}
	for i, rope := range []Rope{FullAttention: c.FullRope, SlidingAttention: c.SlidingRope} {
		kind := LayerKind(i)
		if layer := slices.Index(c.Kinds, kind); layer >= 0 {
			p.ropes[kind] = rope.table(first, T, c.Layer(layer).HeadDim)
		}
	}
	p.span = func(kind LayerKind) func(int) (int, int) {
		if kind == SlidingAttention {
			return causal(c.Window)
		}
		return causal(0)
	}
	p.kept = map[int]KV{}
	p.x, p.norm, p.sub = NewMatrix(T, c.Hidden), NewMatrix(T, c.Hidden), NewMatrix(T, c.Hidden)
}

// run computes everything up to the final norm. keep sees the residual stream
// before the first and after each layer.
func (p *pass) run(ctx context.Context, ids []int32, keep func(*Matrix)) error {
	if len(ids) == 0 {
		return fmt.Errorf("reference: no tokens")
	}
	p.begin(0, len(ids))
	p.embed(ids)
	p.tap("embed", p.x)
	if p.config.PerLayer.Width > 0 {
		p.perLayerInputs(ids)
	}
	return p.layers(ctx, keep)
}

// layers turns the residual stream into the final norm's output.
func (p *pass) layers(ctx context.Context, keep func(*Matrix)) error {
	c := &p.config
	if p.err == nil {
		keep(p.x)
	}
	for p.layer = range c.Layers {
		if p.err != nil {
			return p.err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reference: stopped before layer %d: %w", p.layer, err)
		}
		p.attention()
		p.mlp()
		if c.PerLayer.Width > 0 {
			p.perLayerInput()
		}
		p.finish()
		if p.err == nil {
			keep(p.x)
		}
	}
	p.rmsNorm(p.norm, p.x, normName, c.Hidden)
	if p.err == nil {
		p.tap("final_norm", p.norm)
	}
	return p.err
}

func (p *pass) embed(ids []int32) {
	c := &p.config
	for t, id := range ids {
		if id < 0 || int(id) >= c.Vocab {
			p.fail(fmt.Errorf("reference: token %d at position %d is outside the vocabulary of %d", id, t, c.Vocab))
			return
		}
		row := p.x.Row(t)
		p.fail(p.weights.read(embedName, row, int(id)*c.Hidden))
		for i := range row {
			row[i] *= c.EmbedScale
		}
	}
}

// attention is the first half of a layer: norm, projections, rope, attention,
// residual sum.
func (p *pass) attention() {
	c, l, T := &p.config, p.config.Layer(p.layer), p.x.Rows
	own := l.KVSource == p.layer
	p.rmsNorm(p.norm, p.x, p.name("input_layernorm.weight"), c.Hidden)
	p.show("attn_norm", p.norm)
	p.q = resized(p.q, T, c.Heads*l.HeadDim)
	p.linear(p.q, p.norm, "self_attn.q_proj", c.QKVBias)
	if own {
		p.k, p.v = resized(p.k, T, l.KVHeads*l.HeadDim), resized(p.v, T, l.KVHeads*l.HeadDim)
		p.linear(p.k, p.norm, "self_attn.k_proj", c.QKVBias)
		p.linear(p.v, p.norm, "self_attn.v_proj", c.QKVBias)
	}
	p.show("q_proj", p.q)
	if c.QKNorm {
		p.rmsNorm(p.q, p.q, p.name("self_attn.q_norm.weight"), l.HeadDim)
	}
	p.rotate(p.q, l)
	if own {
		p.show("k_proj", p.k)
		if c.QKNorm {
			p.rmsNorm(p.k, p.k, p.name("self_attn.k_norm.weight"), l.HeadDim)
		}
		p.rotate(p.k, l)
		if c.VNorm {
			p.show("v_proj", p.v)
			rmsNorm(p.v, p.v, slices.Repeat([]float32{1}, l.HeadDim), c.NormEps, false)
		}
	}
	p.show("q", p.q)
	if own {
		p.show("k", p.k)
		p.show("v", p.v)
	}
	if p.err != nil {
		return
	}
	kv := p.keysAndValues(l)
	h := heads{query: c.Heads, kv: l.KVHeads, dim: l.HeadDim, scale: c.ScoreScale, softcap: c.ScoreSoftcap, span: p.span(l.Kind)}
	p.context = resized(p.context, T, p.q.Cols)
	peak := attention(p.context, p.q, kv.K, kv.V, h, p.dot)
	if p.scores != nil {
		p.scores(p.layer, peak, scoreBound(p.q, kv.K, h, p.dot))
	}
	p.show("attn_ctx", p.context)
	p.linear(p.sub, p.context, "self_attn.o_proj", c.OutBias)
	p.show("attn_out", p.sub)
	if c.Sandwich {
		p.rmsNorm(p.sub, p.sub, p.name("post_attention_layernorm.weight"), c.Hidden)
		p.show("post_attn_norm", p.sub)
	}
	add(p.x, p.x, p.sub)
	p.show("resid_mid", p.x)
}

// keysAndValues returns what the running layer attends to, and keeps what it
// computed itself if another layer reads it.
func (p *pass) keysAndValues(l Layer) KV {
	c := &p.config
	switch l.KVSource {
	case TargetKV:
		return p.kinds[l.Kind]
	case p.layer:
	default:
		return p.kept[l.KVSource]
	}
	kv := KV{p.k, p.v}
	if slices.Contains(c.KVSource[p.layer+1:], p.layer) {
		p.kept[p.layer] = kv
		p.k, p.v = nil, nil
	}
	if p.kinds != nil {
		p.kinds[l.Kind] = kv
		p.k, p.v = nil, nil
	}
	return kv
}

func (p *pass) rotate(x *Matrix, l Layer) {
	for t := range x.Rows {
		p.ropes[l.Kind].rotate(x.Row(t), t, l.HeadDim)
	}
}

// mlp is the second half of a layer: norm, gated MLP, residual sum.
func (p *pass) mlp() {
	c, l, T := &p.config, p.config.Layer(p.layer), p.x.Rows
	norm := "post_attention_layernorm.weight"
	if c.Sandwich {
		norm = "pre_feedforward_layernorm.weight"
	}
	p.rmsNorm(p.norm, p.x, p.name(norm), c.Hidden)
	p.show("mlp_norm", p.norm)
	p.gate, p.up = resized(p.gate, T, l.Intermediate), resized(p.up, T, l.Intermediate)
	p.linear(p.gate, p.norm, "mlp.gate_proj", c.MLPBias)
	p.linear(p.up, p.norm, "mlp.up_proj", c.MLPBias)
	p.show("mlp_gate", p.gate)
	p.show("mlp_up", p.up)
	parallel(p.gate.Rows, 1, func(lo, hi int) {
		for t := lo; t < hi; t++ {
			p.activate(p.gate.Row(t), p.up.Row(t))
		}
	})
	p.show("mlp_act", p.gate)
	p.linear(p.sub, p.gate, "mlp.down_proj", c.MLPBias)
	p.show("mlp_out", p.sub)
	if c.Sandwich {
		p.rmsNorm(p.sub, p.sub, p.name("post_feedforward_layernorm.weight"), c.Hidden)
		p.show("post_mlp_norm", p.sub)
	}
	add(p.x, p.x, p.sub)
}

// activate replaces gate by act(gate)·by.
func (p *pass) activate(gate, by []float32) {
	for i, x := range gate {
		gate[i] = float32(p.activation(float64(x))) * by[i]
	}
}

// finish ends a layer.
func (p *pass) finish() {
	if p.config.LayerScalar {
		if p.config.PerLayer.Width == 0 {
			p.show("resid_mlp", p.x)
		}
		scalar := []float32{1}
		if p.err == nil {
			p.fail(p.weights.read(p.name("layer_scalar"), scalar, 0))
		}
		for i := range p.x.Data {
			p.x.Data[i] *= scalar[0]
		}
	}
	p.show("out", p.x)
	if peak := p.x.MaxAbs(); p.err == nil && peak-peak != 0 {
		p.fail(fmt.Errorf("reference: layers.%d.out: the residual stream is not finite", p.layer))
	}
}

// head computes logits for the wanted rows, a tile of the vocabulary at a
// time.
func (p *pass) head(ctx context.Context, opts Options) (*Matrix, error) {
	const tileBytes = 16 << 20
	c := &p.config
	x := p.norm
	if opts.Positions != nil {
		x = NewMatrix(len(opts.Positions), c.Hidden)
		for i, t := range opts.Positions {
			copy(x.Row(i), p.norm.Row(t))
		}
	}
	name := headName
	if c.TiedHead {
		name = embedName
	}
	var logits *Matrix
	if opts.HeadTile == nil {
		logits = NewMatrix(x.Rows, c.Vocab)
	}
	step := max(1, tileBytes/4/c.Hidden)
	for first := 0; first < c.Vocab; first += step {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reference: stopped in the head: %w", err)
		}
		tile := NewMatrix(x.Rows, min(step, c.Vocab-first))
		if p.project(tile, x, name, first, nil); p.err != nil {
			return nil, p.err
		}
		if c.FinalSoftcap != 0 {
			softcap(tile.Data, c.FinalSoftcap)
		}
		if opts.HeadTile != nil {
			if err := opts.HeadTile(first, tile); err != nil {
				return nil, err
			}
			continue
		}
		for t := range tile.Rows {
			copy(logits.Row(t)[first:], tile.Row(t))
		}
	}
	if logits != nil {
		p.tap("logits", logits)
	}
	return logits, nil
}

func (p *pass) name(suffix string) string { return layerName(p.layer, suffix) }

// show hands an intermediate of the running layer to the tap.
func (p *pass) show(site string, x *Matrix) {
	if p.err == nil {
		p.tap(fmt.Sprintf("layers.%d.%s", p.layer, site), x)
	}
}

func (p *pass) fail(err error) { p.err = either(p.err, err) }

func (p *pass) rmsNorm(dst, x *Matrix, name string, width int) {
	if p.err != nil {
		return
	}
	if p.skipNorm != nil && p.skipNorm(name) {
		copy(dst.Data, x.Data)
		return
	}
	w, err := p.weights.vector(name, width)
	if err != nil {
		p.fail(err)
		return
	}
	rmsNorm(dst, x, w, p.config.NormEps, p.config.UnitOffset)
}

// linear applies a module of the running layer.
func (p *pass) linear(y, x *Matrix, module string, hasBias bool) {
	if p.err != nil {
		return
	}
	var bias []float32
	if hasBias {
		var err error
		if bias, err = p.weights.vector(p.name(module+".bias"), y.Cols); err != nil {
			p.fail(err)
			return
		}
	}
	p.project(y, x, p.name(module+".weight"), 0, bias)
}

// project computes y = x·wᵀ + bias for rows first to first+y.Cols of the
// stored matrix w.
func (p *pass) project(y, x *Matrix, name string, first int, bias []float32) {
	if p.err != nil {
		return
	}
	if p.product != nil {
		w, ok := p.weights.src.Tensor(name)
		if !ok {
			p.fail(fmt.Errorf("reference: tensor %q is missing", name))
			return
		}
		p.fail(p.product(y, x, w, first, bias))
		return
	}
	w, err := p.weights.matrix(name, first, y.Cols, x.Cols)
	if err != nil {
		p.fail(err)
		return
	}
	linear(y, x, w, bias, p.dot)
}
