package engine

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
)

// headTable finds the one constant [rows, width] of a program: the weights of
// a head that is the table of embeddings.
func headTable(p *mil.Program, rows, width int) (checkpoint.Tensor, error) {
	var found mil.RawConst
	for _, name := range p.Names() {
		var err error
		p.Functions[name].Body.Walk(func(op *mil.Op) {
			if !op.IsConst() {
				return
			}
			c, ok := op.Out().Const.(mil.RawConst)
			if t := op.Out().Const.Type(); !ok || len(t.Shape) != 2 || t.Shape[0] != rows || t.Shape[1] != width {
				return
			}
			if found != nil && found != c {
				err = fmt.Errorf("two constants are [%d %d]: which is the head?", rows, width)
			}
			found = c
		})
		if err != nil {
			return nil, err
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no constant is [%d %d]: there is no head to take embeddings from (compressed weights?)", rows, width)
	}
	switch found.Type().DType {
	case mil.Float16, mil.Float32:
		return constTensor{found}, nil
	}
	return nil, fmt.Errorf("the head is %v, want fp16 or fp32", found.Type())
}

// constTensor reads a constant as a tensor of a checkpoint.
type constTensor struct{ c mil.RawConst }

func (t constTensor) Name() string { return "head" }
func (t constTensor) Shape() []int { return t.c.Type().Shape }

func (t constTensor) DType() checkpoint.DType {
	if t.c.Type().DType == mil.Float16 {
		return checkpoint.F16
	}
	return checkpoint.F32
}

func (t constTensor) WriteTo(w io.Writer) (int64, error) { return t.c.WriteTo(w) }

func (t constTensor) ReadFloat32(dst []float32, off int) error {
	raw, each := t.c.Raw(), 4
	if t.DType() == checkpoint.F16 {
		each = 2
	}
	if off < 0 || (off+len(dst))*each > len(raw) {
		return fmt.Errorf("engine: read of elements [%d, %d) of %d", off, off+len(dst), len(raw)/each)
	}
	for i := range dst {
		if at := (off + i) * each; each == 2 {
			dst[i] = half.ToF32(binary.LittleEndian.Uint16(raw[at:]))
		} else {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[at:]))
		}
	}
	return nil
}
