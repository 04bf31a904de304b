package runtime

import (
	"github.com/smelt-go/smelt/internal/half"
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
	if len(x) < 1<<14 {
		half.RoundF16(x)
		return
	}
	f.par(len(x), 1<<13, func(lo, hi int) { half.RoundF16(x[lo:hi]) })
}

// roundTo rounds the elements of t to its type.
func roundTo(t *Tensor) {
	if t.DType == mil.Float16 {
		half.RoundF16(t.F)
	}
}
