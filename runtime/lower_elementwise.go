package runtime

import (
	"github.com/smelt-go/smelt/mil"
)

var elementwiseLowerers = map[string]lowerer{
	"add": arith(func(a, b float32) float32 { return a + b }, func(a, b int32) int32 { return a + b }),
}

// arith lowers a broadcasting binary op.
func arith(ff func(a, b float32) float32, fi func(a, b int32) int32) lowerer {
	return func(l *lowering, op *mil.Op) (instr, error) {
		x, err := l.must(op, "x")
		if err != nil {
			return instr{}, err
		}
		y, err := l.must(op, "y")
		if err != nil {
			return instr{}, err
		}
		o := l.result(op, 0)
		return instr{alias: -1, run: func(f *frame) error {
			a, b := f.t[x], f.t[y]
			shape, err := mil.Broadcast(a.Shape, b.Shape)
			if err != nil {
				return err
			}
			t := f.out(o, a.DType, shape...)
			if t.F != nil {
				broadcast2(f, t.F, a.F, b.F, shape, a.Shape, b.Shape, ff)
			} else {
				broadcast2(f, t.I, a.I, b.I, shape, a.Shape, b.Shape, fi)
			}
			return nil
		}}, nil
	}
}

// broadcast2 applies op over operands broadcast to shape.
func broadcast2[A, B, T any](f *frame, dst []T, a []A, b []B, shape, as, bs []int, op func(A, B) T) {
	switch {
	case len(a) == len(dst) && len(b) == len(dst):
		f.par(len(dst), 4096, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				dst[i] = op(a[i], b[i])
			}
		})
	case len(b) == 1:
		y := b[0]
		f.par(len(dst), 4096, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				dst[i] = op(a[i], y)
			}
		})
	default:
		sa, sb := broadcastStrides(as, shape), broadcastStrides(bs, shape)
		forEach(shape, func(i int, idx []int) {
			dst[i] = op(a[dot(idx, sa)], b[dot(idx, sb)])
		})
	}
}
