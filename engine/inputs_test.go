package engine

import (
	"math"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"pgregory.net/rapid"
)

// drawAttn draws a kind of attention and a context.
func drawAttn(t *rapid.T) (a chunking.Attn, context int) {
	context = rapid.IntRange(1, 40).Draw(t, "context")
	if rapid.Bool().Draw(t, "sliding") {
		a.Window = rapid.IntRange(1, 50).Draw(t, "window")
		a.Slots, a.Layout = min(a.Window, context), chunking.Ring
		return a, context
	}
	a.Slots, a.Layout = context, chunking.Linear
	return a, context
}

// slotPosition is the position whose keys slot s holds when positions
// 0 … pos-1 have been committed, or -1 if the slot is empty.
func slotPosition(a chunking.Attn, s, pos int) int {
	if a.Layout == chunking.Linear {
		if s < pos {
			return s
		}
		return -1
	}
	if s >= pos {
		return -1
	}
	return s + (pos-1-s)/a.Slots*a.Slots
}

// TestSlots writes positions one by one into a model of the cache and checks
// that slotPosition says what every slot holds.
func TestSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, context := drawAttn(t)
		held := make([]int, a.Slots)
		for i := range held {
			held[i] = -1
		}
		for pos := range context {
			for s, want := range held {
				if got := slotPosition(a, s, pos); got != want {
					t.Fatalf("after %d positions slot %d holds %d, slotPosition says %d", pos, s, want, got)
				}
			}
			held[a.Slot(pos, pos)] = pos
		}
	})
}

// TestMask compares a mask with the definition of causal attention within a
// window: every visible position is unblocked exactly once.
func TestMask(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, context := drawAttn(t)
		T := rapid.IntRange(1, context).Draw(t, "T")
		b := block{pos: rapid.IntRange(0, context-1).Draw(t, "pos")}
		b.n = rapid.IntRange(1, min(T, context-b.pos)).Draw(t, "n")
		width := a.Slots + T
		m := make([]float32, T*width)
		fillMask(m, a, b, T, -1e4)
		for row := range T {
			open := map[int]int{}
			for c, v := range m[row*width : (row+1)*width] {
				switch {
				case v == -1e4:
				case v != 0:
					t.Fatalf("mask value %g", v)
				case c < a.Slots:
					open[slotPosition(a, c, b.pos)]++
				default:
					open[b.pos+c-a.Slots]++
				}
			}
			q := b.pos + row
			if row >= b.n {
				if len(open) != 1 || open[q] != 1 {
					t.Fatalf("padding row %d sees %v", row, open)
				}
				continue
			}
			first := 0
			if a.Window > 0 {
				first = max(0, q-a.Window+1)
			}
			if len(open) != q-first+1 {
				t.Fatalf("query %d sees %d positions, want %d…%d", q, len(open), first, q)
			}
			for p := first; p <= q; p++ {
				if open[p] != 1 {
					t.Fatalf("query %d sees position %d %d times", q, p, open[p])
				}
			}
		}
	})
}

// TestOneHot scatters by the matrix and compares with writing slot by slot.
func TestOneHot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, context := drawAttn(t)
		T := rapid.IntRange(1, context).Draw(t, "T")
		b := block{pos: rapid.IntRange(0, context-1).Draw(t, "pos")}
		b.n = rapid.IntRange(1, min(T, context-b.pos)).Draw(t, "n")
		hot := make([]float32, a.Slots*T)
		fillOneHot(hot, a, b, T)
		want := make([]int, a.Slots) // token written to the slot, from 1
		for i := range b.n {
			want[a.Slot(b.pos+i, b.pos)] = i + 1
		}
		for s := range a.Slots {
			got, ones := 0, 0
			for c := range T {
				if hot[s*T+c] == 1 {
					got, ones = c+1, ones+1
				}
			}
			if ones > 1 || got != want[s] {
				t.Fatalf("slot %d takes token %d (%d ones), want %d", s, got-1, ones, want[s]-1)
			}
		}
	})
}

func TestRope(t *testing.T) {
	a := chunking.Attn{InvFreq: []float32{1, 0.25}}
	dst := make([]float32, 3*4)
	fillRope(dst, a, block{pos: 7, n: 2}, 3, math.Cos)
	for row, p := range []float64{7, 8, 8} { // the padding row repeats the last
		for i, f := range []float64{1, 0.25, 1, 0.25} {
			if want := float32(math.Cos(p * f)); dst[row*4+i] != want {
				t.Errorf("row %d column %d: %g, want %g", row, i, dst[row*4+i], want)
			}
		}
	}
}

// TestMergedMask writes the tokens of a call into a model of the cache, and
// wants every query to see the positions that causal attention within a window
// shows it, each once.
func TestMergedMask(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, context := drawAttn(t)
		T := rapid.IntRange(1, min(context, 12)).Draw(t, "T")
		b := block{pos: rapid.IntRange(0, context-1).Draw(t, "pos")}
		b.n = rapid.IntRange(1, min(T, context-b.pos)).Draw(t, "n")
		// held[col] is the position that a column stands for.
		var held []int
		if a.Layout == chunking.Ring {
			a.Layout = chunking.Shift
			for p := b.pos - a.Slots; p < b.pos+T; p++ {
				held = append(held, p)
			}
			if T == 1 { // the oldest row makes room
				held = held[1:]
			}
		} else {
			for s := range a.Slots {
				held = append(held, s)
			}
		}
		mask := make([]float32, T*len(held))
		fillMergedMask(mask, a, b, T, -7)
		for row := range T {
			q := b.pos + min(row, b.n-1)
			for col, p := range held {
				want := float32(-7)
				if p >= 0 && p <= q && (a.Window == 0 || p > q-a.Window) {
					want = 0
				}
				if got := mask[row*len(held)+col]; got != want {
					t.Fatalf("%+v %+v: row %d sees column %d (position %d) with %g, want %g", a, b, row, col, p, got, want)
				}
			}
		}
	})
}
