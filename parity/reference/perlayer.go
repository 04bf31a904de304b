package reference

import "fmt"

// perLayerInputs computes what each layer receives beside the residual stream,
// after the "per-layer embeddings" of Gemma 3n and Gemma 4:
//
//	(norm(project(embed)·ProjectionScale) + table[token]·TokenScale) · CombineScale
//
// with one norm for each layer's part. Only the rows of the table that ids name
// are read: at full size it is the largest tensor of the checkpoint.
func (p *pass) perLayerInputs(ids []int32) {
	c, T := &p.config, len(ids)
	width, total := c.PerLayer.Width, c.Layers*c.PerLayer.Width
	if p.err != nil {
		return
	}
	token := NewMatrix(T, total)
	for t, id := range ids {
		if int(id) >= c.PerLayer.Vocab {
			p.fail(fmt.Errorf("reference: token %d at position %d is outside the per-layer vocabulary of %d", id, t, c.PerLayer.Vocab))
			return
		}
		row := token.Row(t)
		p.fail(p.weights.read(perLayerTableName, row, int(id)*total))
		for i := range row {
			row[i] *= c.PerLayer.TokenScale
		}
	}
	projected, part := NewMatrix(T, total), NewMatrix(T, width)
	for layer := range c.Layers {
		p.project(part, p.x, perLayerProjectionName, layer*width, nil)
		for t := range T {
			for i, x := range part.Row(t) {
				projected.Row(t)[layer*width+i] = x * c.PerLayer.ProjectionScale
			}
		}
	}
	p.rmsNorm(projected, projected, perLayerNormName, width)
	if p.err != nil {
		return
	}
	p.tap("per_layer_token", token)
	p.tap("per_layer_projected", projected)
	for i, x := range projected.Data {
		projected.Data[i] = (x + token.Data[i]) * c.PerLayer.CombineScale
	}
	p.perLayer = projected
	p.tap("per_layer_inputs", p.perLayer)
}

// perLayerInput lets the residual stream gate the layer's input and adds what
// comes out.
func (p *pass) perLayerInput() {
	c, T := &p.config, p.x.Rows
	width := c.PerLayer.Width
	p.show("resid_mlp", p.x)
	gate := resized(p.gate, T, width)
	p.linear(gate, p.x, "per_layer_input_gate", false)
	p.show("ple_gate", gate)
	if p.err != nil {
		return
	}
	for t := range T {
		p.activate(gate.Row(t), p.perLayer.Row(t)[p.layer*width:(p.layer+1)*width])
	}
	p.show("ple_act", gate)
	p.linear(p.sub, gate, "per_layer_projection", false)
	p.show("ple_out", p.sub)
	p.rmsNorm(p.sub, p.sub, p.name("post_per_layer_input_norm.weight"), c.Hidden)
	p.show("post_ple_norm", p.sub)
	add(p.x, p.x, p.sub)
	p.show("resid_ple", p.x)
}
