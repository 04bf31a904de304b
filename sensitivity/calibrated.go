package sensitivity

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/quant"
)

// calibrated reports whether a candidate's codes depend on a text.
func (s *sweep) calibrated(f quant.Format) bool { return s.o.Coding.calibrated(f) }

// checkCoding refuses calibrated candidates without a text, and notes the text.
func (s *sweep) checkCoding() error {
	i := slices.IndexFunc(s.o.Formats, s.calibrated)
	if i >= 0 && len(s.o.Coding.Windows) == 0 {
		return fmt.Errorf("sensitivity: candidate %s needs a calibration text to code with", Name(s.o.Formats[i]))
	}
	if i < 0 && (s.o.Base == nil || len(s.o.Coding.Windows) == 0) {
		return nil
	}
	h := sha256.New()
	s.o.Coding.hash(h)
	s.out.CodedOn = hex.EncodeToString(h.Sum(nil))
	return nil
}

// code stores the base, if there is one, and codes the calibrated candidates of
// tensors that are still to be measured.
//
// Without a base they are coded from the inputs of the original model; method
// best, which lets layers make up for what those before them did, has no meaning
// for a single tensor then: its candidates are coded with error feedback. Around
// a base, candidates are coded as the base's own is in the same place: behind
// what is stored before it, making up for the same drift.
func (s *sweep) code() error {
	s.coded = map[[2]int]*coded{}
	wanted := map[int]bool{}
	for _, i := range s.mine {
		if !s.done[i] && slices.ContainsFunc(s.tensors[i].Candidates, func(c Measurement) bool { return s.calibrated(c.Format) }) {
			wanted[i] = true
		}
	}
	view := &viewer{
		wants: func(i int) bool { return wanted[i] },
		see: func(i int, mod *calibration.Module, own quant.Format) (same *coded, err error) {
			for j, c := range s.tensors[i].Candidates {
				if !s.calibrated(c.Format) {
					continue
				}
				e, err := encodeModule(s.ctx, c.Format, s.m.Weights[i].Tensor, mod)
				if err != nil {
					return nil, err
				}
				s.coded[[2]int{i, j}] = e
				if c.Format == own {
					same = e
				}
			}
			return same, nil
		},
	}
	if s.o.Base == nil && len(wanted) == 0 {
		return nil
	}
	base := s.o.Base
	if base == nil {
		base = &quant.Recipe{Target: quant.TargetMLX, Default: quant.Uniform(4, 64).Default, Rules: []quant.Rule{{Keep: true, Path: []string{"**"}}}}
	}
	with, err := s.m.store(s.ctx, base, s.o.Coding, view, func(done, total int64) {
		if s.o.Progress != nil {
			s.o.Progress("coding", done, total)
		}
	})
	s.stored = with
	return err
}

// variant is a candidate's matrix. Modules that calibration does not see, such as
// an embedding beside a head of its own, are refitted.
func (s *sweep) variant(i, j int) (*coded, error) {
	if e := s.coded[[2]int{i, j}]; e != nil {
		delete(s.coded, [2]int{i, j})
		return e, nil
	}
	f := s.tensors[i].Candidates[j].Format
	o := quant.Options{Method: f.Method, Context: s.ctx}
	if f.Method.Calibrated() {
		o.Method = quant.Refit
	}
	return encodeWith(f, s.m.Weights[i].Tensor, o)
}
