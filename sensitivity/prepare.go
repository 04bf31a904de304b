package sensitivity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/quant"
)

func (s *sweep) prepare() error {
	o := &s.o
	if o.BatchTokens == 0 {
		o.BatchTokens = 8192
	}
	if o.Estimator == "" {
		o.Estimator = KL
	}
	if o.Estimator != KL && o.Estimator != Scaled && o.Estimator != Noise {
		return fmt.Errorf("sensitivity: estimator %q is unknown (want %s, %s or %s)", o.Estimator, KL, Scaled, Noise)
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
	if err := s.checkCoding(); err != nil {
		return err
	}
	if o.Base != nil {
		sum := sha256.Sum256(fmt.Appendf(o.Base.Marshal(), "correction %g", o.Coding.Correction))
		s.out.Base = hex.EncodeToString(sum[:])
		var err error
		if s.baseFormats, err = s.m.chosen(o.Base); err != nil {
			return err
		}
	}
	s.candidates()
	if len(s.mine) == 0 {
		return fmt.Errorf("sensitivity: no tensor can have any of the formats (a group size that divides no matrix?)")
	}
	if err := s.share(); err != nil {
		return err
	}
	var err error
	s.journal, s.done, err = openJournal(o.Journal, s.header(), s.tensors)
	if err != nil {
		return err
	}
	s.open = map[int]int{}
	for _, i := range s.mine {
		if !s.done[i] {
			s.all += s.cost(i)
		}
	}
	if err := s.code(); err != nil {
		return err
	}
	return s.reference()
}

// candidates lists what every tensor can be stored as.
func (s *sweep) candidates() {
	l := lister{formats: s.o.Formats, warn: s.o.Warn, out: s.out}
	for _, w := range s.m.Weights {
		l.add(w.entry(), w.Tensor)
	}
	s.tensors, s.mine = l.finish()
}

// lister finds what tensors can be stored as.
type lister struct {
	formats []quant.Format
	warn    func(string)
	out     *Map // counts what is kept as it is

	tensors []Tensor
	mine    []int          // those with candidates
	left    map[string]int // tensors that cannot have a format
}

// add lists the candidates of w, which t describes.
func (l *lister) add(t Tensor, w checkpoint.Tensor) {
	if l.left == nil {
		l.left = map[string]int{}
	}
	for _, f := range l.formats {
		c, err := codecOf(f)
		if err == nil {
			var size int64
			if size, err = quant.Bytes(c, w.DType(), w.Shape()); err == nil {
				t.Candidates = append(t.Candidates, Measurement{Format: f, Bytes: size})
				continue
			}
		}
		l.left[Name(f)]++
	}
	if len(t.Candidates) == 0 {
		l.out.KeptBytes += t.Bytes
		l.out.KeptParameters += t.Parameters
	} else {
		l.mine = append(l.mine, len(l.tensors))
	}
	l.tensors = append(l.tensors, t)
}

// finish warns of formats that do not suit all.
func (l *lister) finish() (tensors []Tensor, mine []int) {
	for _, f := range l.formats {
		if n := l.left[Name(f)]; n > 0 && l.warn != nil {
			l.warn(fmt.Sprintf("%d of %d tensors cannot be %s: their columns are no multiple of the group", n, len(l.tensors), Name(f)))
		}
	}
	return l.tensors, l.mine
}

// cost of a tensor's probes, in layers run.
func (s *sweep) cost(i int) int64 {
	n := int64(0)
	for _, c := range s.tensors[i].Candidates {
		if s.measured(c.Format) && s.baseFormats[i] != c.Format {
			n++
		}
	}
	if s.o.Probe || s.o.Estimator == Noise {
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
	s.base = d.With(decoder.Overlay(d.Source(), s.stored))
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
	s.baseKL = kl[0]
	s.out.BaseDamage, _ = meanError(s.baseKL)
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
