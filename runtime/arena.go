package runtime

import "math/bits"

// buffer is reference-counted storage: a slot that owns or aliases it, a
// state that holds it and a result that was handed out each count once. At
// zero it returns to its arena.
type buffer struct {
	refs  int
	class int
	f     []float32
	i     []int32
}

// arena recycles the buffers of one instance. Capacities are rounded up to a
// few classes per octave, so that a run of the same shapes as the last finds
// every buffer it needs.
type arena struct {
	floats, ints [numClasses][]*buffer
}

const (
	minClassBits = 6 // the smallest buffer holds 64 elements
	numClasses   = 4 * (48 - minClassBits)
)

// sizeClass returns the class that holds n elements and its capacity: m·2^k
// for m in 4..7.
func sizeClass(n int) (class, capacity int) {
	n = max(n, 1<<minClassBits)
	k := bits.Len(uint(n-1)) - 3
	m := (n + 1<<k - 1) >> k // 4 < m <= 8
	return 4*(k+3-minClassBits) + m - 4, m << k
}

// take returns a buffer for n elements with one reference. Its contents are
// undefined.
func (a *arena) take(n int, float bool) *buffer {
	c, capacity := sizeClass(n)
	list := &a.ints[c]
	if float {
		list = &a.floats[c]
	}
	if k := len(*list) - 1; k >= 0 {
		b := (*list)[k]
		*list = (*list)[:k]
		b.refs = 1
		return b
	}
	b := &buffer{refs: 1, class: c}
	if float {
		b.f = make([]float32, capacity)
	} else {
		b.i = make([]int32, capacity)
	}
	return b
}

// release drops one reference.
func (a *arena) release(b *buffer) {
	if b == nil {
		return
	}
	if b.refs--; b.refs > 0 {
		return
	}
	if b.f != nil {
		a.floats[b.class] = append(a.floats[b.class], b)
	} else {
		a.ints[b.class] = append(a.ints[b.class], b)
	}
}
