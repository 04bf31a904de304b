package reference

import (
	"context"
	"fmt"
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
}

// Result of a forward pass over T tokens.
type Result struct {
	Logits *Matrix   // [len(Positions), vocab]; nil without Options.Head
	Hidden []*Matrix // [0] embedding output, [i] residual stream after layer i−1; each [T, hidden]
	Norm   *Matrix   // after the final norm [T, hidden]
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
	p := &pass{config: m.config, weights: weightReader{src: m.src}, tap: tap, dot: fastDot}
	err := p.run(ctx, ids, func(x *Matrix) { result.Hidden = append(result.Hidden, x.Clone()) })
	if err != nil {
		return nil, err
	}
	result.Norm = p.norm
	if opts.Head {
		if result.Logits, err = p.head(ctx, opts); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// pass is one forward pass: the weights in flight and the activations.
type pass struct {
	config  Config
	weights weightReader
	tap     Tap
	scores  func(layer int, peak, bound float32) // may be nil
	err     error

	full, sliding ropeTable

	x, norm, sub *Matrix // [T, hidden]: residual stream, normed input, sublayer output
	q, context   *Matrix // [T, heads·headDim]
	k, v         *Matrix // [T, kvHeads·headDim]
	gate, up     *Matrix // [T, intermediate]
	layer        int     // the layer that runs
	activation   func(float64) float64
	dot          dotFunc
}

// run computes everything up to the final norm. keep sees the residual stream
// before the first and after each layer.
func (p *pass) run(ctx context.Context, ids []int32, keep func(*Matrix)) error {
	c := &p.config
	if len(ids) == 0 {
		return fmt.Errorf("reference: no tokens")
	}
	T := len(ids)
	p.activation = activations[c.Activation]
	p.full = c.FullRope.table(T, c.HeadDim)
	p.sliding = p.full
	if c.SlidingRope != c.FullRope {
		p.sliding = c.SlidingRope.table(T, c.HeadDim)
	}
	p.x, p.norm, p.sub = NewMatrix(T, c.Hidden), NewMatrix(T, c.Hidden), NewMatrix(T, c.Hidden)
	p.q, p.context = NewMatrix(T, c.Heads*c.HeadDim), NewMatrix(T, c.Heads*c.HeadDim)
	p.k, p.v = NewMatrix(T, c.KVHeads*c.HeadDim), NewMatrix(T, c.KVHeads*c.HeadDim)
	p.gate, p.up = NewMatrix(T, c.Intermediate), NewMatrix(T, c.Intermediate)

	p.embed(ids)
	p.tap("embed", p.x)
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
	c := &p.config
	p.rmsNorm(p.norm, p.x, p.name("input_layernorm.weight"), c.Hidden)
	p.show("attn_norm", p.norm)
	p.linear(p.q, p.norm, "self_attn.q_proj", c.QKVBias)
	p.linear(p.k, p.norm, "self_attn.k_proj", c.QKVBias)
	p.linear(p.v, p.norm, "self_attn.v_proj", c.QKVBias)
	p.show("q_proj", p.q)
	p.show("k_proj", p.k)
	if c.QKNorm {
		p.rmsNorm(p.q, p.q, p.name("self_attn.q_norm.weight"), c.HeadDim)
		p.rmsNorm(p.k, p.k, p.name("self_attn.k_norm.weight"), c.HeadDim)
	}
	kind := c.Kinds[p.layer]
	table := p.full
	if kind == SlidingAttention {
		table = p.sliding
	}
	for t := range p.q.Rows {
		table.rotate(p.q.Row(t), t, c.HeadDim)
		table.rotate(p.k.Row(t), t, c.HeadDim)
	}
	p.show("q", p.q)
	p.show("k", p.k)
	p.show("v", p.v)
	if p.err != nil {
		return
	}
	peak := attention(p.context, p.q, p.k, p.v, c, kind, p.dot)
	if p.scores != nil {
		p.scores(p.layer, peak, scoreBound(p.q, p.k, c, p.dot))
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

// mlp is the second half of a layer: norm, gated MLP, residual sum.
func (p *pass) mlp() {
	c := &p.config
	norm := "post_attention_layernorm.weight"
	if c.Sandwich {
		norm = "pre_feedforward_layernorm.weight"
	}
	p.rmsNorm(p.norm, p.x, p.name(norm), c.Hidden)
	p.show("mlp_norm", p.norm)
	p.linear(p.gate, p.norm, "mlp.gate_proj", c.MLPBias)
	p.linear(p.up, p.norm, "mlp.up_proj", c.MLPBias)
	p.show("mlp_gate", p.gate)
	p.show("mlp_up", p.up)
	parallel(p.gate.Rows, 1, func(lo, hi int) {
		for t := lo; t < hi; t++ {
			gate, up := p.gate.Row(t), p.up.Row(t)
			for i, x := range gate {
				gate[i] = float32(p.activation(float64(x))) * up[i]
			}
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
		w, err := p.weights.matrix(name, first, min(step, c.Vocab-first), c.Hidden)
		if err != nil {
			return nil, err
		}
		tile := NewMatrix(x.Rows, w.Rows)
		linear(tile, x, w, nil, p.dot)
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
	w, err := p.weights.vector(name, width)
	if err != nil {
		p.fail(err)
		return
	}
	rmsNorm(dst, x, w, p.config.NormEps, p.config.UnitOffset)
}

func (p *pass) linear(y, x *Matrix, module string, hasBias bool) {
	if p.err != nil {
		return
	}
	var bias []float32
	var err error
	if hasBias {
		if bias, err = p.weights.vector(p.name(module+".bias"), y.Cols); err != nil {
			p.fail(err)
			return
		}
	}
	w, err := p.weights.matrix(p.name(module+".weight"), 0, y.Cols, x.Cols)
	if err != nil {
		p.fail(err)
		return
	}
	linear(y, x, w, bias, p.dot)
}
