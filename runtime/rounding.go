package runtime

import (
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// roundSlot rounds the result in slot s to its declared type. Results that
// alias somebody's storage already are of that type.
func (f *frame) roundSlot(s int) {
	h := &f.own[s]
	if f.t[s] != &h.Tensor || h.buf == nil || h.buf.refs > 1 || h.DType != mil.Float16 {
		return
	}
	x := h.F
	if len(x) < 1<<16 {
		kernel.RoundF16(x)
		return
	}
	f.par(len(x), 1<<15, func(lo, hi int) { kernel.RoundF16(x[lo:hi]) })
}

// roundTo rounds the elements of t to its type.
func roundTo(t *Tensor) {
	if t.DType == mil.Float16 {
		kernel.RoundF16(t.F)
	}
}
