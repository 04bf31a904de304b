package engine

import (
	"github.com/smelt-go/smelt/chunking"
)

// block describes the tokens of one call: the first n of the function's T
// rows are real and stand at positions pos, pos+1, …; the rest is padding.
type block struct{ pos, n int }

// visible reports whether a query at position q attends to position p.
func visible(a chunking.Attn, q, p int) bool {
	return p >= 0 && p <= q && (a.Window == 0 || q-p < a.Window)
}

// fillMask writes [T, Slots+T]: cache slots first, then the new tokens. A
// padding row attends to itself alone, so that its softmax is defined.
func fillMask(dst []float32, a chunking.Attn, b block, T int, blocked float32) {
	width := a.Slots + T
	for t := range T {
		row := dst[t*width : (t+1)*width]
		for i := range row {
			row[i] = blocked
		}
		row[a.Slots+t] = 0
		if t >= b.n {
			continue
		}
		q := b.pos + t
		from := max(0, b.pos-a.Slots)
		if a.Window > 0 {
			from = max(from, q-a.Window+1)
		}
		for p := from; p < b.pos; p++ {
			row[a.Slot(p, b.pos)] = 0
		}
		for u := range t {
			if visible(a, q, b.pos+u) {
				row[a.Slots+u] = 0
			}
		}
	}
}

// fillMergedMask writes [T, columns] for caches that hold the tokens of the
// call: a column a slot, or, where tokens were appended to a shifting cache, up
// to the last of them. A padding row sees what the last token does.
func fillMergedMask(dst []float32, a chunking.Attn, b block, T int, blocked float32) {
	width := len(dst) / T
	first := 0 // the position of column 0
	if a.Layout == chunking.Shift {
		first = b.pos + T - width
	}
	for t := range T {
		row := dst[t*width : (t+1)*width]
		q := b.pos + min(t, b.n-1)
		for col := range row {
			if row[col] = blocked; visible(a, q, first+col) {
				row[col] = 0
			}
		}
	}
}

// fillRope writes T rows of cos or sin, [T, 2·len(InvFreq)]. The angle is
// the float32 product position·frequency, as PyTorch computes it.
func fillRope(dst []float32, a chunking.Attn, b block, T int, fn func(float64) float64) {
	half := len(a.InvFreq)
	for t := range T {
		row := dst[t*2*half : (t+1)*2*half]
		p := float32(b.pos + min(t, b.n-1))
		for i, f := range a.InvFreq {
			v := float32(fn(float64(p * f)))
			row[i], row[half+i] = v, v
		}
	}
}

// fillOneHot writes [Slots, T]: column t is one at the slot of token t. Of
// tokens that share a slot only the last is written.
func fillOneHot(dst []float32, a chunking.Attn, b block, T int) {
	clear(dst)
	for t := max(0, b.n-a.Slots); t < b.n; t++ {
		dst[a.Slot(b.pos+t, b.pos)*T+t] = 1
	}
}
