package sensitivity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/kernel"
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
	// Estimator is KL, the default, or Noise.
	Estimator string
	// Probe asks for noise probes beside KL.
	Probe bool
	// Windows are what calibrated methods (feedback, best, and refit weighted by
	// importance) code with, as calibration.Windows makes them.
	Windows [][]int32
	// Base, if not nil, stores all other tensors by a recipe while one is probed:
	// damage is then that of the whole.
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
	coded       map[[2]int]*coded // candidates coded beforehand, by weight and candidate
}

// job is a variant on its way through the layers after its tensor.
type job struct {
	weight    int
	candidate int // −1: noise
	state     *decoder.State
	head      *head // nil: the model's
}

func (s *sweep) prepare() error {
	o := &s.o
	if o.BatchTokens == 0 {
		o.BatchTokens = 8192
	}
	if o.Estimator == "" {
		o.Estimator = KL
	}
	if o.Estimator != KL && o.Estimator != Noise {
		return fmt.Errorf("sensitivity: estimator %q is unknown (want %s or %s)", o.Estimator, KL, Noise)
	}
	if len(o.Formats) == 0 || len(o.Sequences) == 0 {
		return fmt.Errorf("sensitivity: there is nothing to measure: %d formats, %d sequences", len(o.Formats), len(o.Sequences))
	}
	for i := range o.Formats {
		if o.Formats[i].Method == "" {
			o.Formats[i].Method = quant.RTN
		}
		if _, err := codecOf(o.Formats[i]); err != nil {
			return err
		}
		if slices.Contains(o.Formats[:i], o.Formats[i]) {
			return fmt.Errorf("sensitivity: candidate %s is given twice", Name(o.Formats[i]))
		}
	}
	cal := o.Calibration
	s.out = &Map{Schema: Schema, Estimator: o.Estimator, Source: s.m.Source, Calibration: &cal, Kernel: kernel.Level(), Shard: o.Shard,
		KeptBytes: s.m.keptBytes, KeptParameters: s.m.keptParameters}
	if err := s.checkWindows(); err != nil {
		return err
	}
	s.candidates()
	if len(s.mine) == 0 {
		return fmt.Errorf("sensitivity: no tensor can have any of the formats (a group size that divides no matrix?)")
	}
	if err := s.share(); err != nil {
		return err
	}
	if err := s.reference(); err != nil {
		return err
	}
	var err error
	s.journal, s.done, err = openJournal(o.Journal, s.header(), s.tensors)
	s.open = map[int]int{}
	for _, i := range s.mine {
		if !s.done[i] {
			s.all += s.cost(i)
		}
	}
	if err != nil {
		return err
	}
	return s.precode()
}

// candidates lists what every tensor can be stored as.
func (s *sweep) candidates() {
	left := map[string]int{}
	for i, w := range s.m.Weights {
		t := w.entry()
		for _, f := range s.o.Formats {
			c, err := codecOf(f)
			if err == nil {
				var size int64
				if size, err = quant.Bytes(c, w.Tensor.DType(), w.Tensor.Shape()); err == nil {
					t.Candidates = append(t.Candidates, Measurement{Format: f, Bytes: size})
					continue
				}
			}
			left[Name(f)]++
		}
		s.tensors = append(s.tensors, t)
		if len(t.Candidates) == 0 {
			s.out.KeptBytes += t.Bytes
			s.out.KeptParameters += t.Parameters
			continue
		}
		s.mine = append(s.mine, i)
	}
	for _, f := range s.o.Formats {
		if n := left[Name(f)]; n > 0 && s.o.Warn != nil {
			s.o.Warn(fmt.Sprintf("%d of %d tensors cannot be %s: their columns are no multiple of the group", n, len(s.m.Weights), Name(f)))
		}
	}
}

// cost of a tensor's probes, in layers run.
func (s *sweep) cost(i int) int64 {
	n := int64(len(s.tensors[i].Candidates))
	if s.o.Estimator == Noise {
		n = 1
	} else if s.o.Probe {
		n++
	}
	return n * int64(s.m.Source.Layers-max(0, s.m.Weights[i].Layer)+1)
}

// share cuts the list of tensors into parts of about equal work.
func (s *sweep) share() error {
	sh := s.o.Shard
	if sh == nil {
		return nil
	}
	if sh.Count < 1 || sh.Index < 1 || sh.Index > sh.Count {
		return fmt.Errorf("sensitivity: shard %d of %d does not exist (want 1/n to n/n)", sh.Index, sh.Count)
	}
	if sh.Count > len(s.mine) {
		return fmt.Errorf("sensitivity: %d shards of %d tensors (choose fewer)", sh.Count, len(s.mine))
	}
	var total, before int64
	for _, i := range s.mine {
		total += s.cost(i)
	}
	var part []int
	for k, i := range s.mine {
		at := int((before + s.cost(i)/2) * int64(sh.Count) / total)
		// Every part has a tensor.
		at = min(max(at, k-len(s.mine)+sh.Count), k)
		before += s.cost(i)
		if at == sh.Index-1 {
			part = append(part, i)
		}
	}
	s.mine = part
	return nil
}

// reference runs the original, and the base, over all sequences.
func (s *sweep) reference() error {
	d := s.m.Decoder
	finish := func(d *decoder.Decoder) (decoder.Matrix, error) {
		st, err := d.Embed(s.ctx, s.o.Sequences, nil)
		if err != nil {
			return decoder.Matrix{}, err
		}
		if err := d.Layers(s.ctx, st, decoder.Options{}); err != nil {
			return decoder.Matrix{}, err
		}
		return d.Norm(st)
	}
	x, err := finish(d)
	if err != nil {
		return err
	}
	if s.ref, err = reference(s.ctx, d, x, s.o.Calibration.Seed); err != nil {
		return err
	}
	s.base = d
	if s.o.Base == nil {
		return nil
	}
	with, err := Stored(s.ctx, s.m, s.o.Base)
	if err != nil {
		return err
	}
	s.base = d.With(decoder.Overlay(d.Source(), with))
	sum := sha256.Sum256(s.o.Base.Marshal())
	s.out.Base = hex.EncodeToString(sum[:])
	if x, err = finish(s.base); err != nil {
		return err
	}
	h, err := newHeadOf(s.base, nil)
	if err != nil {
		return err
	}
	kl, err := divergences(s.ref, h, x)
	if err != nil {
		return err
	}
	s.out.BaseDamage, _ = meanError(kl[0])
	return nil
}

// header identifies a run: a journal of another one is of no use.
func (s *sweep) header() *Map {
	h := *s.out
	for _, i := range s.mine {
		t := s.tensors[i]
		t.Candidates = slices.Clone(t.Candidates)
		h.Tensors = append(h.Tensors, t)
	}
	if s.o.Probe {
		h.Estimator += "+" + Noise
	}
	return &h
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
		if c.OutputError, err = outputError(v); err != nil {
			return err
		}
		if s.o.Estimator == Noise {
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

// finished notes that a job of a tensor, or its start, is done.
func (s *sweep) finished(i int) error {
	if s.open[i]--; s.open[i] > 0 {
		return nil
	}
	if s.o.Estimator == Noise {
		s.tensors[i].price()
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

// meanError is the mean and its standard error.
func meanError(x []float64) (mean, se float64) {
	n := float64(len(x))
	for _, v := range x {
		mean += v
	}
	mean /= n
	var s float64
	for _, v := range x {
		s += float64((v - mean) * (v - mean))
	}
	if n < 2 {
		return mean, 0
	}
	return mean, math.Sqrt(s / (n - 1) / n)
}

// outputEnergy is ‖x·(w − v)ᵀ‖², v nil for 0.
func outputEnergy(x decoder.Matrix, w, v []float32) float64 {
	const rows = 32
	out := len(w) / x.Cols
	sums := make([]float64, (out+rows-1)/rows)
	_ = each(len(sums), func(ws *workspace, b int) error {
		n := min(rows, out-b*rows)
		part := w[b*rows*x.Cols : (b*rows+n)*x.Cols]
		if v != nil {
			ws.rows = grown(ws.rows, len(part))
			kernel.Sub(ws.rows, part, v[b*rows*x.Cols:(b*rows+n)*x.Cols])
			part = ws.rows
		}
		ws.z = grown(ws.z, x.Rows*n)
		kernel.MulF32(ws.z, n, x.Data, x.Cols, x.Rows, part, x.Cols, n, x.Cols)
		for i := range x.Rows {
			sums[b] += float64(kernel.SumSquares(ws.z[i*n : (i+1)*n]))
		}
		return nil
	})
	var total float64
	for _, e := range sums {
		total += e
	}
	return total
}

func nameSeed(name string) uint64 {
	sum := sha256.Sum256([]byte(strings.TrimSpace(name)))
	var x uint64
	for _, b := range sum[:8] {
		x = x<<8 | uint64(b)
	}
	return x
}
