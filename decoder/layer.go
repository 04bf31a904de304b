package decoder

import (
	"context"
	"fmt"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// Input is what linear modules multiply by their matrices.
type Input struct {
	Modules []string // those that share it, such as the paths of q_proj, k_proj, v_proj
	X       Matrix   // [tokens, in]; valid until the modules have run
}

// Options of a layer.
type Options struct {
	// Weights may replace the matrix of any linear module of the layer. It is
	// asked after Tap has seen the module's input.
	Weights Weights
	// Tap sees the input of the modules before they run. It must not write.
	Tap func(Input) error
}

// Layer runs layer s.Layer in place. After an error s is of no use.
func (d *Decoder) Layer(ctx context.Context, s *State, o Options) error {
	p, err := d.Begin(s)
	if err != nil {
		return err
	}
	for p.Next() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("decoder: stopped in layer %d: %w", s.Layer, err)
		}
		if o.Tap != nil {
			if err := o.Tap(p.Input()); err != nil {
				return err
			}
		}
		if err := p.Run(o.Weights); err != nil {
			return err
		}
	}
	return p.err
}

// Layers runs all layers that are left.
func (d *Decoder) Layers(ctx context.Context, s *State, o Options) error {
	for s.Layer < d.config.Layers {
		if err := d.Layer(ctx, s, o); err != nil {
			return err
		}
	}
	return nil
}

// Pass is a layer on its way, stage by stage: linear modules that share an
// input, with all that follows up to the next input.
//
//	for p.Next() {
//		in := p.Input()
//		…
//		err := p.Run(weights)
//	}
type Pass struct {
	d      *Decoder
	s      *State
	stages []stage
	at     int
	input  Input
	err    error
}

type stage struct {
	modules []string
	input   func() (Matrix, error)
	run     func(x Matrix, w []weight) error
	shapes  [][2]int
}

// Begin starts layer s.Layer. When Next returns false, the layer is done and
// s.Layer counts it.
func (d *Decoder) Begin(s *State) (*Pass, error) {
	c := &d.config
	if s.Layer < 0 || s.Layer >= c.Layers {
		return nil, fmt.Errorf("decoder: there is no layer %d of %d", s.Layer, c.Layers)
	}
	p := &Pass{d: d, s: s, at: -1}
	p.attentionStages()
	p.mlpStages()
	if c.PerLayer.Width > 0 {
		p.perLayerStages()
	}
	return p, nil
}

// Next computes the input of the next stage; false if there is none, or after an
// error of the last.
func (p *Pass) Next() bool {
	if p.err != nil {
		return false
	}
	p.at++
	if p.at >= len(p.stages) {
		p.err = p.finish()
		return false
	}
	st := &p.stages[p.at]
	x, err := st.input()
	p.input, p.err = Input{st.modules, x}, err
	return err == nil
}

// Input is that of the running stage.
func (p *Pass) Input() Input { return p.input }

// Last reports whether no stage follows.
func (p *Pass) Last() bool { return p.at >= len(p.stages)-1 }

// Err is the error that ended the pass.
func (p *Pass) Err() error { return p.err }

// Run applies the modules of the stage.
func (p *Pass) Run(w Weights) error {
	st := &p.stages[p.at]
	ws := make([]weight, len(st.modules))
	for i, module := range st.modules {
		if ws[i], p.err = p.d.weight(module, w, st.shapes[i][0], st.shapes[i][1]); p.err != nil {
			return p.err
		}
	}
	p.err = st.run(p.input.X, ws)
	return p.err
}

func (p *Pass) path(module string) string {
	return fmt.Sprintf("model.layers.%d.%s", p.s.Layer, module)
}

func (p *Pass) add(modules []string, shapes [][2]int, input func() (Matrix, error), run func(Matrix, []weight) error) {
	for i, m := range modules {
		modules[i] = p.path(m)
	}
	p.stages = append(p.stages, stage{modules, input, run, shapes})
}

// bias is that of a module, nil if it has none.
func (p *Pass) bias(module string, n int, has bool) ([]float32, error) {
	if !has {
		return nil, nil
	}
	return p.d.vector(p.path(module)+".bias", n)
}

// normed is the residual stream after a norm.
func (p *Pass) normed(name string) (Matrix, error) {
	s := p.s
	gamma, err := p.d.gamma(p.path(name)+".weight", s.Hidden.Cols)
	if err != nil {
		return Matrix{}, err
	}
	x := s.scratch.norm.resized(s.Hidden.Rows, s.Hidden.Cols)
	s.scratch.norm = x
	parallel.Ranges(x.Rows, 64, func(lo, hi int) {
		norm(x.Data[lo*x.Cols:hi*x.Cols], s.Hidden.Data[lo*x.Cols:hi*x.Cols], gamma, p.d.config.NormEps)
	})
	return x, nil
}

// accumulate adds post(x·wᵀ + bias) to the residual stream; post is an RMS norm,
// empty for none.
func (p *Pass) accumulate(x Matrix, w weight, bias []float32, post string) error {
	s := p.s
	if post == "" {
		return stream(x.Rows, 1, []weight{w}, func(lo, hi, first int, w []Matrix) {
			y := NewMatrix(hi-lo, w[0].Rows).columns(0, hi-lo, 0, w[0].Rows)
			y.mul(x, lo, w[0], bias, first)
			dst := s.Hidden.columns(lo, hi, first, w[0].Rows)
			for i := range y.rows {
				kernel.Add(dst.row(i), dst.row(i), y.row(i))
			}
		})
	}
	gamma, err := p.d.gamma(p.path(post)+".weight", s.Hidden.Cols)
	if err != nil {
		return err
	}
	y := s.scratch.norm.resized(x.Rows, w.rows)
	s.scratch.norm = y
	err = stream(x.Rows, 1, []weight{w}, func(lo, hi, first int, w []Matrix) {
		y.columns(lo, hi, first, w[0].Rows).mul(x, lo, w[0], bias, first)
	})
	if err != nil {
		return err
	}
	parallel.Ranges(x.Rows, 64, func(lo, hi int) {
		part, dst := y.Data[lo*y.Cols:hi*y.Cols], s.Hidden.Data[lo*y.Cols:hi*y.Cols]
		norm(part, part, gamma, p.d.config.NormEps)
		kernel.Add(dst, dst, part)
	})
	return nil
}

func (p *Pass) mlpStages() {
	c := &p.d.config
	l := c.Layer(p.s.Layer)
	pre, post := "post_attention_layernorm", ""
	if c.Sandwich {
		pre, post = "pre_feedforward_layernorm", "post_feedforward_layernorm"
	}
	in, inner := c.Hidden, l.Intermediate
	p.add([]string{"mlp.gate_proj", "mlp.up_proj"}, [][2]int{{inner, in}, {inner, in}},
		func() (Matrix, error) { return p.normed(pre) },
		func(x Matrix, w []weight) error {
			gateBias, err := p.bias("mlp.gate_proj", inner, c.MLPBias)
			if err != nil {
				return err
			}
			upBias, err := p.bias("mlp.up_proj", inner, c.MLPBias)
			if err != nil {
				return err
			}
			act := activation(c.Activation)
			y := p.s.scratch.a.resized(x.Rows, inner)
			p.s.scratch.a = y
			return stream(x.Rows, 1, w, func(lo, hi, first int, w []Matrix) {
				n := w[0].Rows
				gate, up := y.columns(lo, hi, first, n), NewMatrix(hi-lo, n).columns(0, hi-lo, 0, n)
				gate.mul(x, lo, w[0], gateBias, first)
				up.mul(x, lo, w[1], upBias, first)
				for i := range gate.rows {
					act(gate.row(i), gate.row(i))
					kernel.Mul(gate.row(i), gate.row(i), up.row(i))
				}
			})
		})
	p.add([]string{"mlp.down_proj"}, [][2]int{{in, inner}},
		func() (Matrix, error) { return p.s.scratch.a, nil },
		func(x Matrix, w []weight) error {
			bias, err := p.bias("mlp.down_proj", in, c.MLPBias)
			if err != nil {
				return err
			}
			return p.accumulate(x, w[0], bias, post)
		})
}

// perLayerStages let the residual stream gate the layer's own input and add what
// comes out.
func (p *Pass) perLayerStages() {
	c := &p.d.config
	width, layer := c.PerLayer.Width, p.s.Layer
	p.add([]string{"per_layer_input_gate"}, [][2]int{{width, c.Hidden}},
		func() (Matrix, error) { return p.s.Hidden, nil },
		func(x Matrix, w []weight) error {
			act := activation(c.Activation)
			y := p.s.scratch.a.resized(x.Rows, width)
			p.s.scratch.a = y
			return stream(x.Rows, 1, w, func(lo, hi, first int, w []Matrix) {
				g := y.columns(lo, hi, first, w[0].Rows)
				g.mul(x, lo, w[0], nil, first)
				for i := range g.rows {
					row := g.row(i)
					act(row, row)
					kernel.Mul(row, row, p.s.perLayer.Row(lo + i)[layer*width+first:][:g.n])
				}
			})
		})
	p.add([]string{"per_layer_projection"}, [][2]int{{c.Hidden, width}},
		func() (Matrix, error) { return p.s.scratch.a, nil },
		func(x Matrix, w []weight) error { return p.accumulate(x, w[0], nil, "post_per_layer_input_norm") })
}

// finish ends the layer.
func (p *Pass) finish() error {
	s := p.s
	if p.d.config.LayerScalar {
		scalar, err := p.d.vector(p.path("layer_scalar"), 1)
		if err != nil {
			return err
		}
		kernel.MulScalar(s.Hidden.Data, s.Hidden.Data, scalar[0])
	}
	if !finite(s.Hidden.Data) {
		return fmt.Errorf("decoder: layer %d: the residual stream is not finite", s.Layer)
	}
	s.Layer++
	return nil
}

// Modules lists the linear modules of a layer that have weights of their own, in
// the order they run.
func (d *Decoder) Modules(layer int) []string {
	p, err := d.Begin(&State{Layer: layer})
	if err != nil {
		return nil
	}
	var all []string
	for _, st := range p.stages {
		all = append(all, st.modules...)
	}
	return all
}

// overlay is a Source with some tensors replaced.
type overlay struct {
	checkpoint.Source
	with map[string]checkpoint.Tensor
}

func (o overlay) Tensor(name string) (checkpoint.Tensor, bool) {
	if t, ok := o.with[name]; ok {
		return t, true
	}
	return o.Source.Tensor(name)
}

// Overlay is src with the tensors of with, by name, in place of its own.
func Overlay(src checkpoint.Source, with map[string]checkpoint.Tensor) checkpoint.Source {
	return overlay{src, with}
}
