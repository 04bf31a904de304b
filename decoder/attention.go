package decoder

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/internal/elementary"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
	"github.com/smelt-go/smelt/parity/reference"
)

func (p *Pass) attentionStages() {
	c := &p.d.config
	l := c.Layer(p.s.Layer)
	wide, narrow := c.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	modules, shapes := []string{"self_attn.q_proj"}, [][2]int{{wide, c.Hidden}}
	if l.KVSource == p.s.Layer {
		modules = append(modules, "self_attn.k_proj", "self_attn.v_proj")
		shapes = append(shapes, [2]int{narrow, c.Hidden}, [2]int{narrow, c.Hidden})
	}
	p.add(modules, shapes,
		func() (Matrix, error) { return p.normed("input_layernorm") },
		func(x Matrix, w []weight) error { return p.attend(l, x, w) })
	post := ""
	if c.Sandwich {
		post = "post_attention_layernorm"
	}
	p.add([]string{"self_attn.o_proj"}, [][2]int{{c.Hidden, wide}},
		func() (Matrix, error) { return p.s.scratch.a, nil },
		func(x Matrix, w []weight) error {
			bias, err := p.bias("self_attn.o_proj", c.Hidden, c.OutBias)
			if err != nil {
				return err
			}
			return p.accumulate(x, w[0], bias, post)
		})
}

// attend projects, rotates and attends; what it leaves in scratch.a is the input
// of the output projection.
func (p *Pass) attend(l reference.Layer, x Matrix, w []weight) error {
	c, s := &p.d.config, p.s
	rope := c.FullRope
	if l.Kind == reference.SlidingAttention {
		rope = c.SlidingRope
	}
	table := newRotation(rope, slices.Max(s.Lengths), l.HeadDim)
	positions := make([]int, 0, x.Rows)
	for _, n := range s.Lengths {
		for t := range n {
			positions = append(positions, t)
		}
	}
	project := func(dst Matrix, w weight, name string, headNorm string, unit, rotate bool) error {
		bias, err := p.bias("self_attn."+name, dst.Cols, c.QKVBias)
		if err != nil {
			return err
		}
		var gamma []float32
		switch {
		case unit:
			gamma = slices.Repeat([]float32{1}, l.HeadDim)
		case headNorm != "":
			if gamma, err = p.d.gamma(p.path("self_attn."+headNorm)+".weight", l.HeadDim); err != nil {
				return err
			}
		}
		// Whole heads at a time.
		return stream(x.Rows, l.HeadDim, []weight{w}, func(lo, hi, first int, w []Matrix) {
			y := dst.columns(lo, hi, first, w[0].Rows)
			y.mul(x, lo, w[0], bias, first)
			for i := range y.rows {
				if gamma != nil {
					norm(y.row(i), y.row(i), gamma, c.NormEps)
				}
				if rotate {
					table.rotate(y.row(i), positions[lo+i], l.HeadDim)
				}
			}
		})
	}
	qNorm, kNorm := "", ""
	if c.QKNorm {
		qNorm, kNorm = "q_norm", "k_norm"
	}
	s.scratch.a = s.scratch.a.resized(x.Rows, c.Heads*l.HeadDim)
	if err := project(s.scratch.a, w[0], "q_proj", qNorm, false, true); err != nil {
		return err
	}
	kv, ok := s.kept[l.KVSource]
	if l.KVSource == s.Layer {
		kv = keyValue{s.scratch.k.resized(x.Rows, l.KVHeads*l.HeadDim), s.scratch.v.resized(x.Rows, l.KVHeads*l.HeadDim)}
		if err := project(kv.k, w[1], "k_proj", kNorm, false, true); err != nil {
			return err
		}
		if err := project(kv.v, w[2], "v_proj", "", c.VNorm, false); err != nil {
			return err
		}
		if slices.Contains(c.KVSource[s.Layer+1:], s.Layer) || slices.Contains(s.KeepKV, s.Layer) {
			s.kept[s.Layer] = kv
			s.scratch.k, s.scratch.v = Matrix{}, Matrix{}
		} else {
			s.scratch.k, s.scratch.v = kv.k, kv.v
		}
	} else if !ok {
		return p.missing(l.KVSource)
	}
	window := 0
	if l.Kind == reference.SlidingAttention {
		window = c.Window
	}
	attention(s.scratch.a, kv, s.Lengths, heads{c.Heads, l.KVHeads, l.HeadDim, window, c.ScoreScale, c.ScoreSoftcap})
	return nil
}

// heads describes the attention of a layer.
type heads struct {
	query, kv, dim int
	window         int // keys a query sees, its own included; 0: all before it
	scale, softcap float32
}

// attention replaces queries by softmax(cap(scale·q·kᵀ) + mask)·v, head by head,
// in tiles of queries.
func attention(q Matrix, kv keyValue, lengths []int, h heads) {
	const tile = 64
	type job struct{ start, from, to, head int } // queries [from, to) of the sequence at row start
	var jobs []job
	start := 0
	for _, n := range lengths {
		for from := 0; from < n; from += tile {
			for head := range h.query {
				jobs = append(jobs, job{start, from, min(from+tile, n), head})
			}
		}
		start += n
	}
	longest := slices.Max(lengths)
	parallel.Ranges(len(jobs), 4, func(lo, hi int) {
		scores := make([]float32, tile*longest)
		out := make([]float32, tile*h.dim)
		for _, j := range jobs[lo:hi] {
			first := 0
			if h.window > 0 {
				first = max(0, j.from-h.window+1)
			}
			rows, keys := j.to-j.from, j.to-first
			at := (j.start+j.from)*q.Cols + j.head*h.dim
			kvAt := (j.start+first)*kv.k.Cols + j.head/(h.query/h.kv)*h.dim
			kernel.MulF32(scores, keys, q.Data[at:], q.Cols, rows, kv.k.Data[kvAt:], kv.k.Cols, keys, h.dim)
			for i := range rows {
				row := scores[i*keys : (i+1)*keys]
				from, to := 0, j.from+i+1-first
				if h.window > 0 {
					from = max(0, to-h.window)
				}
				clear(row[:from])
				clear(row[to:])
				weigh(row[from:to], h)
			}
			kernel.MulNN(out, h.dim, scores, keys, rows, kv.v.Data[kvAt:], kv.v.Cols, keys, h.dim)
			for i := range rows {
				copy(q.Data[at+i*q.Cols:][:h.dim], out[i*h.dim:])
			}
		}
	})
}

// weigh turns scores into weights.
func weigh(row []float32, h heads) {
	kernel.MulScalar(row, row, h.scale)
	softcap(row, h.softcap)
	kernel.Softmax(row, row)
}

// softcap replaces x by cap·tanh(x/cap), unless cap is 0.
func softcap(x []float32, cap float32) {
	if cap == 0 {
		return
	}
	for i, v := range x {
		x[i] = float32(elementary.Tanh(float64(v/cap))) * cap
	}
}

// rotation holds cosines and sines: a row a position.
type rotation struct{ cos, sin Matrix }

func newRotation(r reference.Rope, positions, headDim int) rotation {
	f := r.Frequencies(headDim)
	t := rotation{NewMatrix(positions, len(f)), NewMatrix(positions, len(f))}
	parallel.Ranges(positions, 64, func(lo, hi int) {
		for p := lo; p < hi; p++ {
			cos, sin := t.cos.Row(p), t.sin.Row(p)
			for i, w := range f {
				angle := float64(float32(p) * w)
				cos[i], sin[i] = float32(elementary.Cos(angle)), float32(elementary.Sin(angle))
			}
		}
	})
	return t
}

// rotate turns every head of row: pairs are (i, i+headDim/2).
func (t rotation) rotate(row []float32, position, headDim int) {
	cos, sin := t.cos.Row(position), t.sin.Row(position)
	half := headDim / 2
	for head := 0; head < len(row); head += headDim {
		lo, hi := row[head:head+half], row[head+half:head+headDim]
		for i := range lo {
			a, b, c, s := lo[i], hi[i], cos[i], sin[i]
			lo[i] = float32(a*c) - float32(b*s)
			hi[i] = float32(b*c) + float32(a*s)
		}
	}
}

func (p *Pass) missing(source int) error {
	return fmt.Errorf("decoder: layer %d reads keys and values of layer %d, which has not run (start from Embed)", p.s.Layer, source)
}
