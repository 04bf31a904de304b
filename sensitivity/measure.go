package sensitivity

import (
	"context"
	"fmt"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/quant"
)

// noiseError is the relative squared error of noise probes: about that of 4 bits
// in groups of 64.
const noiseError = 0.01

// Options of Measure.
type Options struct {
	Sequences   [][]int32
	Calibration Calibration
	Formats     []quant.Format // candidates; formats that a tensor cannot have are left out for it
	// Estimator is KL, the default, Scaled or Noise.
	Estimator string
	// Probed says which candidates Scaled measures; nil: all.
	Probed func(f quant.Format) bool
	// Probe asks for noise probes beside KL.
	Probe bool
	// Coding is what calibrated methods (feedback, best, and refit weighted by
	// importance) code with.
	Coding Coding
	// Base, if not nil, stores all other tensors by a recipe while one is probed:
	// damage is then that of the whole, and its standard error that of the
	// difference from BaseDamage.
	Base  *quant.Recipe
	Shard *Shard
	// Journal is a file that a run which ends early can go on from; "": none.
	Journal string
	// BatchTokens is how many tokens run together, 0 for 8192.
	BatchTokens int

	// Progress, if not nil, is told of work done, in units that take about the
	// same time. Warn is told what may be wrong.
	Progress func(stage string, done, total int64)
	Warn     func(text string)
}

// Measure finds what every candidate of every tensor does.
func Measure(ctx context.Context, m *Model, o Options) (*Map, error) {
	s := &sweep{ctx: ctx, m: m, o: o}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	defer s.journal.close()
	if err := s.run(); err != nil {
		return nil, err
	}
	for _, i := range s.mine {
		s.out.Tensors = append(s.out.Tensors, s.tensors[i])
	}
	if err := s.out.Check(); err != nil {
		return nil, err
	}
	return s.out, nil
}

// sweep is one run.
type sweep struct {
	ctx     context.Context
	m       *Model
	o       Options
	out     *Map
	base    *decoder.Decoder
	ref     []atoms
	journal *journal

	tensors     []Tensor // of all weights; those of mine get candidates
	mine        []int    // weights of this shard that have candidates
	done        map[int]bool
	open        map[int]int // jobs that a tensor waits for
	jobs        []job
	spent, all  int64
	layerInputs map[string]decoder.Matrix
	coded       map[[2]int]*coded            // candidates coded beforehand, by weight and candidate
	stored      map[string]checkpoint.Tensor // the base's, by name
	baseFormats map[int]quant.Format         // its formats, by weight
	baseKL      []float64                    // its divergence, by position
}

// job is a variant on its way through the layers after its tensor.
type job struct {
	weight    int
	candidate int // −1: noise
	state     *decoder.State
	head      *head // nil: the model's
}

func (s *sweep) run() error {
	var todo []int
	for _, i := range s.mine {
		if !s.done[i] {
			todo = append(todo, i)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	start, err := s.base.Embed(s.ctx, s.o.Sequences, nil)
	if err != nil {
		return err
	}
	for len(todo) > 0 && s.m.Weights[todo[0]].Layer < 0 && s.m.Weights[todo[0]].Path != s.headPath() {
		if err := s.probe(todo[0], start); err != nil {
			return err
		}
		todo = todo[1:]
	}
	if err := s.flush(); err != nil {
		return err
	}
	for len(todo) > 0 {
		layer := s.m.Weights[todo[0]].Layer
		if layer < 0 {
			layer = s.m.Source.Layers // the head
		}
		for start.Layer < layer {
			if err := s.base.Layer(s.ctx, start, decoder.Options{}); err != nil {
				return err
			}
		}
		n := 1
		for n < len(todo) && s.m.Weights[todo[n]].Layer == s.m.Weights[todo[0]].Layer {
			n++
		}
		if err := s.layer(start, todo[:n]); err != nil {
			return err
		}
		todo = todo[n:]
	}
	return nil
}

// headPath is the head's, if it is not the embedding.
func (s *sweep) headPath() string {
	if h := s.m.Decoder.Head(); h != decoder.EmbedModule {
		return h
	}
	return ""
}

// layer probes tensors of one layer. start is before it and stays so.
func (s *sweep) layer(start *decoder.State, weights []int) error {
	s.layerInputs = nil
	if start.Layer < s.m.Source.Layers {
		// Inputs of modules, for the errors of their outputs.
		s.layerInputs = map[string]decoder.Matrix{}
		err := s.base.Layer(s.ctx, start.Clone(), decoder.Options{Tap: func(in decoder.Input) error {
			x := in.X.Clone()
			for _, m := range in.Modules {
				s.layerInputs[m] = x
			}
			return nil
		}})
		if err != nil {
			return err
		}
	}
	for _, i := range weights {
		if err := s.probe(i, start); err != nil {
			return err
		}
	}
	return s.flush()
}

// probe codes a tensor in all its formats and lets each variant through the
// tensor's own layer.
func (s *sweep) probe(i int, start *decoder.State) error {
	w := s.m.Weights[i]
	t := &s.tensors[i]
	x, inner := s.layerInputs[w.Path]
	var dense []float32
	var energy float64
	if inner && w.Layer >= 0 {
		var err error
		if dense, err = checkpoint.ReadAll(w.Tensor); err != nil {
			return err
		}
		energy = outputEnergy(x, dense, nil)
	}
	outputError := func(of checkpoint.Tensor) (*float64, error) {
		if dense == nil {
			return nil, nil
		}
		v, err := checkpoint.ReadAll(of)
		if err != nil {
			return nil, err
		}
		e := 0.0
		if energy > 0 {
			e = outputEnergy(x, dense, v) / energy
		}
		return &e, nil
	}
	// Jobs may finish before the last of them is started.
	s.open[i]++
	if s.o.Probe || s.o.Estimator == Noise {
		v, spent, err := noisy(w.Tensor, noiseError, s.o.Calibration.Seed^nameSeed(w.Path))
		if err != nil {
			return err
		}
		t.Probe = &Probe{WeightError: spent}
		if t.Probe.OutputError, err = outputError(v); err != nil {
			return err
		}
		if err := s.start(i, -1, start, v); err != nil {
			return err
		}
	}
	for j := range t.Candidates {
		c := &t.Candidates[j]
		e, err := s.variant(i, j)
		if err != nil {
			return err
		}
		c.WeightError = e.stats.RelativeMSE()
		var v checkpoint.Tensor = e
		if w.Layer >= 0 {
			if v, err = e.dense(); err != nil {
				return err
			}
		}
		if e.stats.OutputEnergy > 0 {
			o := e.stats.OutputError / e.stats.OutputEnergy
			c.OutputError = &o
		} else if c.OutputError, err = outputError(v); err != nil {
			return err
		}
		own, ok := s.baseFormats[i]
		switch {
		case ok && own == c.Format:
			c.Damage = s.out.BaseDamage
			continue
		case !s.measured(c.Format):
			continue
		}
		if err := s.start(i, j, start, v); err != nil {
			return err
		}
	}
	return s.finished(i)
}

// start sets a variant off.
func (s *sweep) start(i, candidate int, from *decoder.State, v checkpoint.Tensor) error {
	w := s.m.Weights[i]
	j := job{weight: i, candidate: candidate}
	replace := func(module string) (checkpoint.Tensor, error) {
		if module == w.Path {
			return v, nil
		}
		return nil, nil
	}
	switch {
	case w.Layer >= 0:
		j.state = from.Clone()
		if err := s.base.Layer(s.ctx, j.state, decoder.Options{Weights: replace}); err != nil {
			return fmt.Errorf("sensitivity: %s: %w", w.Path, err)
		}
	case w.Path == s.headPath():
		j.state = from.Clone()
	default:
		var err error
		if j.state, err = s.base.Embed(s.ctx, s.o.Sequences, replace); err != nil {
			return fmt.Errorf("sensitivity: %s: %w", w.Path, err)
		}
	}
	if w.Path == s.base.Head() {
		var err error
		if j.head, err = newHeadOf(s.base, v); err != nil {
			return err
		}
	}
	s.jobs = append(s.jobs, j)
	s.open[i]++
	if (len(s.jobs)+1)*from.Tokens() > s.o.BatchTokens {
		return s.flush()
	}
	return nil
}

// flush lets all variants run to the end together.
func (s *sweep) flush() error {
	if len(s.jobs) == 0 {
		return nil
	}
	states := make([]*decoder.State, len(s.jobs))
	for k, j := range s.jobs {
		states[k] = j.state
	}
	layers := int64(s.m.Source.Layers - states[0].Layer)
	all, err := decoder.Join(states...)
	if err != nil {
		return err
	}
	if err := s.base.Layers(s.ctx, all, decoder.Options{}); err != nil {
		return err
	}
	x, err := s.base.Norm(all)
	if err != nil {
		return err
	}
	own, err := newHeadOf(s.base, nil)
	if err != nil {
		return err
	}
	jobs := s.jobs
	s.jobs = nil
	for at := 0; at < len(jobs); {
		n, h := 1, own
		if jobs[at].head != nil {
			h = jobs[at].head
		} else {
			for at+n < len(jobs) && jobs[at+n].head == nil {
				n++
			}
		}
		rows := len(s.ref)
		kl, err := divergences(s.ref, h, decoder.Matrix{Rows: n * rows, Cols: x.Cols, Data: x.Data[at*rows*x.Cols : (at+n)*rows*x.Cols]})
		if err != nil {
			return err
		}
		for k := range n {
			if err := s.record(jobs[at+k], kl[k]); err != nil {
				return err
			}
			s.spent += layers + 1
		}
		at += n
	}
	if s.o.Progress != nil {
		s.o.Progress("measuring", min(s.spent, s.all), s.all)
	}
	return nil
}

func (s *sweep) record(j job, kl []float64) error {
	t := &s.tensors[j.weight]
	mean, se := meanError(kl)
	if s.baseKL != nil {
		for i := range kl {
			kl[i] -= s.baseKL[i]
		}
		_, se = meanError(kl)
	}
	if mean-mean != 0 {
		return fmt.Errorf("sensitivity: %s: the divergence is %v", t.Path, mean)
	}
	if j.candidate < 0 {
		t.Probe.Damage, t.Probe.StandardError = mean, se
	} else {
		t.Candidates[j.candidate].Damage, t.Candidates[j.candidate].StandardError = mean, se
	}
	return s.finished(j.weight)
}

// measured reports whether the divergence is measured for a candidate.
func (s *sweep) measured(f quant.Format) bool {
	switch s.o.Estimator {
	case Noise:
		return false
	case Scaled:
		return s.o.Probed == nil || s.o.Probed(f)
	}
	return true
}

// finished notes that a job of a tensor, or its start, is done.
func (s *sweep) finished(i int) error {
	if s.open[i]--; s.open[i] > 0 {
		return nil
	}
	switch s.o.Estimator {
	case Noise:
		s.tensors[i].price()
	case Scaled:
		own, ok := s.baseFormats[i]
		if err := s.tensors[i].scale(s.out.BaseDamage, own, ok, s.measured); err != nil {
			return err
		}
	}
	return s.journal.add(s.tensors[i])
}

// price takes damage to be proportional to squared error, as the noise probe
// found.
func (t *Tensor) price() {
	for j := range t.Candidates {
		c := &t.Candidates[j]
		c.Damage, c.StandardError = t.estimate(c, t.Probe.Damage), t.estimate(c, t.Probe.StandardError)
	}
}

// estimate scales what noise did to a candidate's error.
func (t *Tensor) estimate(c *Measurement, noise float64) float64 {
	e, of := c.WeightError, t.Probe.WeightError
	if c.OutputError != nil && t.Probe.OutputError != nil {
		e, of = *c.OutputError, *t.Probe.OutputError
	}
	if of == 0 {
		return 0
	}
	return noise * e / of
}
