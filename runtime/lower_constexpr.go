package runtime

import (
	"github.com/smelt-go/smelt/internal/decompress"
	"github.com/smelt-go/smelt/mil"
)

// Compressed constants are evaluated at load, once a program, where a
// consumer needs the whole tensor. Consumers that work row by row use table
// instead.

var constexprLowerers = map[string]lowerer{
	"constexpr_affine_dequantize":            lowerConstexpr,
	"constexpr_blockwise_shift_scale":        lowerConstexpr,
	"constexpr_lut_to_dense":                 lowerConstexpr,
	"constexpr_sparse_to_dense":              lowerConstexpr,
	"constexpr_cast":                         lowerConstexpr,
	"constexpr_lut_to_sparse":                lowerConstexpr,
	"constexpr_sparse_blockwise_shift_scale": lowerConstexpr,
}

func lowerConstexpr(l *lowering, op *mil.Op) (instr, error) {
	for i, v := range op.Outputs {
		w, err := l.decoder(v)
		if err != nil {
			return instr{}, err
		}
		t := NewTensor(w.Type.DType, w.Type.Shape...)
		if t.F != nil {
			l.prog.pool.run(len(t.F), 1<<14, func(lo, hi int) { w.Elements(t.F[lo:hi], lo) })
		} else {
			var buf [256]float32
			for at := 0; at < len(t.I); at += len(buf) {
				part := buf[:min(len(buf), len(t.I)-at)]
				w.Elements(part, at)
				for j, x := range part {
					t.I[at+j] = int32(x)
				}
			}
		}
		l.setConst(op, i, t)
	}
	return instr{exact: true, alias: -1}, nil
}

// decoder returns the decoder of a constant or constexpr, for consumers that
// read it in parts. Equal ones are shared by the program's functions.
func (l *lowering) decoder(v *mil.Value) (*decompress.Tensor, error) {
	key := ""
	if v.Const != nil {
		key = constKey(v.Const)
	} else {
		key = constexprKey(v.Op, outputIndex(v))
	}
	cc := l.prog.consts
	cc.mu.Lock()
	defer cc.mu.Unlock()
	d, ok := cc.decoders[key]
	if !ok {
		var err error
		if d, err = decompress.Of(v, decompress.Options{Exact: !l.typed()}); err != nil {
			return nil, err
		}
		cc.decoders[key] = d
	}
	return d, nil
}

// tableMin is the number of elements from which a constant is looked up where
// it lies rather than decoded whole.
const tableMin = 1 << 16

// table returns the decoder of a large compile-time table, or nil.
func (l *lowering) table(v *mil.Value) (*decompress.Tensor, error) {
	if v == nil || v.Const == nil && (v.Op == nil || !isConstexpr(v.Op)) {
		return nil, nil
	}
	t, ok := v.Tensor()
	if !ok || t.NumElements() < tableMin || !t.DType.IsFloat() {
		return nil, nil
	}
	return l.decoder(v)
}

// gatherRows looks rows of a table up.
func (l *lowering) gatherRows(op *mil.Op, table *decompress.Tensor, ix int) instr {
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		i := f.t[ix]
		pos, err := positions(i.I, table.NumRows(), axisName(0))
		if err != nil {
			return err
		}
		n := table.RowLen()
		out := f.out(o, table.Type.DType, append(append([]int(nil), i.Shape...), table.Type.Shape[1:]...)...)
		f.par(len(pos), max(1, copyGrain/max(n, 1)), func(lo, hi int) {
			for k := lo; k < hi; k++ {
				table.Rows(out.F[k*n:(k+1)*n], pos[k], 1)
			}
		})
		return nil
	}}
}
