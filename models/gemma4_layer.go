package models

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/mil"
)

// startPerLayer makes the per-layer embeddings of the tokens, [1,T,L*P]:
// half the power of the token's own rows, half that of a projection of its
// embedding, each layer's slice normed by itself.
//
//	(norm(W·x·H^-½) + rows·√P) · 2^-½
//
// Later parts get the result from the first one.
func (g *graph) startPerLayer(in map[string]*mil.Value, x *mil.Value) error {
	c := g.c
	if c.PerLayer == 0 {
		return nil
	}
	if g.perLayer = g.input(in, PerLayerIn, ""); g.perLayer != nil {
		return nil
	}
	rows := g.input(in, PerLayerRaw, "")
	if ids := g.input(in, InputIDs, ""); rows == nil && ids != nil {
		rows = g.Op("gather", "per_layer.rows", mil.Args{"x": g.weight("model.embed_tokens_per_layer.weight"), "indices": ids, "axis": 0})
		rows = g.Op("mul", "per_layer.raw", mil.Args{"x": rows, "y": c.PerLayerScale()})
	}
	if rows == nil {
		return fmt.Errorf("models: the part has none of %s, %s and %s as input", PerLayerIn, PerLayerRaw, InputIDs)
	}
	wide := c.Layers * c.PerLayer
	p := g.linear("per_layer.proj", "model.per_layer_model_projection", x, false, false)
	p = g.Op("mul", "per_layer.proj_scaled", mil.Args{"x": p, "y": 1 / math.Sqrt(float64(c.Hidden))})
	p = g.Op("reshape", "per_layer.proj_layers", mil.Args{"x": p, "shape": []int{1, g.part.T, c.Layers, c.PerLayer}})
	// The projection carries the scale of the residual stream; the norm
	// takes it out.
	p = g.rms("per_layer.proj_norm", "model.per_layer_projection_norm.weight", p, true, false)
	p = g.Op("reshape", "per_layer.proj_flat", mil.Args{"x": p, "shape": []int{1, g.part.T, wide}})
	sum := g.Op("add", "per_layer.sum", mil.Args{"x": p, "y": rows})
	g.perLayer = g.Op("mul", "per_layer_inputs", mil.Args{"x": sum, "y": math.Sqrt2 / 2})
	return nil
}

// gemma4Tail ends a layer: the gated per-layer embedding joins the residual
// stream, and the stream is multiplied by the layer's scalar.
func (g *graph) gemma4Tail(i int, x *mil.Value) *mil.Value {
	c, p, n := g.c, fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("layers.%d.", i)
	if c.PerLayer > 0 {
		g.Tag(g.weight(p+"per_layer_input_gate.weight"), "residual", "sink")
		gate := g.linear(n+"ple_gate", p+"per_layer_input_gate", x, false, false)
		gate = g.activation(n+"ple_gate_act", gate)
		mine := g.sliceAxis(n+"ple_in", g.perLayer, 2, i*c.PerLayer, (i+1)*c.PerLayer)
		gated := g.Op("mul", n+"ple_gated", mil.Args{"x": gate, "y": mine})
		e := g.linear(n+"ple_proj", p+"per_layer_projection", gated, false, false)
		e = g.rms(n+"ple_out", p+"post_per_layer_input_norm.weight", e, false, true)
		x = g.Op("add", n+"resid_ple", mil.Args{"x": x, "y": e})
	}
	if !c.LayerScalar {
		return x
	}
	return g.Op("mul", n+"out", mil.Args{"x": x, "y": g.weight(p + "layer_scalar")})
}
