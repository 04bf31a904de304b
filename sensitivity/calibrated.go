package sensitivity

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/quant"
)

// calibrated reports whether a candidate's codes depend on a text.
func (s *sweep) calibrated(f quant.Format) bool {
	return f.Method.Calibrated() || f.Method == quant.Refit && len(s.o.Windows) > 0
}

// checkWindows refuses calibrated candidates without a text, and notes the text.
func (s *sweep) checkWindows() error {
	i := slices.IndexFunc(s.o.Formats, s.calibrated)
	if i < 0 {
		return nil
	}
	if len(s.o.Windows) == 0 {
		return fmt.Errorf("sensitivity: candidate %s needs a calibration text to code with", Name(s.o.Formats[i]))
	}
	h := sha256.New()
	for _, w := range s.o.Windows {
		_ = binary.Write(h, binary.LittleEndian, int64(len(w)))
		_ = binary.Write(h, binary.LittleEndian, w)
	}
	s.out.CodedOn = hex.EncodeToString(h.Sum(nil))
	return nil
}

// precode codes the calibrated candidates of tensors that are still to be
// measured, all from the inputs of the original model. Method best, which lets
// layers make up for what those before them did, has no meaning for a single
// tensor: its candidates are coded with error feedback.
func (s *sweep) precode() error {
	s.coded = map[[2]int]*coded{}
	wanted := map[string]int{}
	for _, i := range s.mine {
		if !s.done[i] && slices.ContainsFunc(s.tensors[i].Candidates, func(c Measurement) bool { return s.calibrated(c.Format) }) {
			wanted[s.m.Weights[i].Path] = i
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	want := calibration.Want{What: calibration.Importance}
	for _, f := range s.o.Formats {
		if f.Method.Calibrated() {
			want = calibration.Want{What: calibration.Full, Group: f.GroupSize}
		}
	}
	return calibration.Run(s.ctx, s.m.Decoder, s.o.Windows, calibration.Options{
		Wants: func(path string) calibration.Want {
			if _, ok := wanted[path]; ok {
				return want
			}
			return calibration.Want{}
		},
		Quantize: func(ctx context.Context, m *calibration.Module) (checkpoint.Tensor, error) {
			i, ok := wanted[m.Path]
			if !ok {
				return nil, nil
			}
			feedback := map[int]*quant.Feedback{}
			for j, c := range s.tensors[i].Candidates {
				if !s.calibrated(c.Format) {
					continue
				}
				o := quant.Options{Method: c.Method, Context: ctx}
				if !c.Method.Calibrated() {
					o.Importance = m.Hessian.Importance()
				} else {
					if feedback[c.GroupSize] == nil {
						f, err := m.Feedback(c.GroupSize)
						if err != nil {
							return nil, err
						}
						feedback[c.GroupSize] = f
					}
					o.Feedback = feedback[c.GroupSize]
				}
				e, err := encodeWith(c.Format, s.m.Weights[i].Tensor, o)
				if err != nil {
					return nil, err
				}
				s.coded[[2]int{i, j}] = e
			}
			return nil, nil
		},
		Progress: func(stage string, done, total int64) {
			if s.o.Progress != nil {
				s.o.Progress("coding", done, total)
			}
		},
	})
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
