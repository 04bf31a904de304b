package quant

import (
	"math"
	"math/bits"

	"github.com/smelt-go/smelt/internal/half"
)

// histogram counts fp16 weights by value: what k-means in one dimension needs.
// The zero value is empty. Values must be finite.
type histogram struct {
	weight [1 << 16]float64 // by key
	seen   [1 << 10]uint64  // bit set of keys

	// Sorted distinct values and running sums over them, from fit.
	x          []float64
	w, s       []float64 // Σ weight, Σ weight·x, of the values before
	s2         float64   // Σ weight·x² of all
	prev, next []float64
	from       [][]int32 // by layer: where the last cluster starts
	code       [1 << 16]byte
}

// key orders fp16 bit patterns like the values they stand for.
func key(b uint16) uint16 {
	if b>>15 == 1 {
		return ^b
	}
	return b | 1<<15
}

func unkey(k uint16) uint16 {
	if k>>15 == 1 {
		return k &^ (1 << 15)
	}
	return ^k
}

// reset empties h.
func (h *histogram) reset() {
	h.each(func(k uint16) { h.weight[k] = 0 })
	clear(h.seen[:])
}

// each visits the keys that occur, in ascending order.
func (h *histogram) each(f func(k uint16)) {
	for i, m := range h.seen {
		for m != 0 {
			f(uint16(i<<6 | bits.TrailingZeros64(m)))
			m &= m - 1
		}
	}
}

// add counts weights; importance is that of each, nil for 1.
func (h *histogram) add(w []uint16, importance []float32) {
	if importance == nil {
		for _, b := range w {
			k := key(b)
			h.weight[k]++
			h.seen[k>>6] |= 1 << (k & 63)
		}
		return
	}
	for i, b := range w {
		k := key(b)
		h.weight[k] += float64(importance[i])
		h.seen[k>>6] |= 1 << (k & 63)
	}
}

// sums fills the running sums.
func (h *histogram) sums() {
	h.x = h.x[:0]
	h.w, h.s, h.s2 = append(h.w[:0], 0), append(h.s[:0], 0), 0
	var w, s float64
	h.each(func(k uint16) {
		x, c := float64(half.ToF32(unkey(k))), h.weight[k]
		if c == 0 { // of no importance: any entry will do
			return
		}
		w += c
		s += float64(c * x)
		h.s2 += float64(float64(c*x) * x)
		h.x, h.w, h.s = append(h.x, x), append(h.w, w), append(h.s, s)
	})
}

// fit returns the k centroids, ascending, that minimise Σ weight·(x − nearest)²
// over all tables of k numbers, and that minimum. There are fewer centroids if
// there are fewer values.
//
// In one dimension the clusters are runs of the sorted values. With D(j, i) the
// least error of the first i values in j clusters,
//
//	D(j, i) = min over a of D(j−1, a) + error(a, i),
//
// where error(a, i) = Σwx² − (Σwx)²/Σw over values a to i−1. The best a does not
// decrease with i, so the a of a middle i halves the problem (Grønlund et al.,
// "Fast exact k-means, k-medians and Bregman divergence clustering in 1D", 2017).
// Σwx² of all is the same for every choice and left out.
func (h *histogram) fit(k int) (centroids []float64, err float64) {
	h.sums()
	n := len(h.x)
	k = min(k, n)
	if k == 0 {
		return nil, 0
	}
	h.prev, h.next = grow(h.prev, n+1), grow(h.next, n+1)
	for len(h.from) < k+1 {
		h.from = append(h.from, nil)
	}
	for i := 1; i <= n; i++ {
		h.prev[i] = -gain(h.s[i], h.w[i])
	}
	for j := 2; j <= k; j++ {
		h.from[j] = growInt(h.from[j], n+1)
		if j < k {
			h.layer(j, j, n, j-1, n-1)
		} else {
			h.layer(j, n, n, j-1, n-1)
		}
		h.prev, h.next = h.next, h.prev
	}
	err = max(h.prev[n]+h.s2, 0)
	centroids = make([]float64, k)
	for i, j := n, k; j >= 1; j-- {
		a := 0
		if j > 1 {
			a = int(h.from[j][i])
		}
		centroids[j-1] = (h.s[i] - h.s[a]) / (h.w[i] - h.w[a])
		i = a
	}
	return centroids, err
}

// gain is what a cluster takes off Σwx².
func gain(s, w float64) float64 { return float64(s*s) / w }

// layer computes D(j, i) for lo ≤ i ≤ hi, knowing that the best a is in [first, last].
func (h *histogram) layer(j, lo, hi, first, last int) {
	for lo <= hi {
		i := (lo + hi) / 2
		best, at := math.Inf(1), first
		si, wi := h.s[i], h.w[i]
		top := min(last, i-1)
		prev, s, w := h.prev[:top+1], h.s[:top+1], h.w[:top+1]
		for a := first; a <= top; a++ {
			d := si - s[a]
			if c := prev[a] - float64(d*d)/(wi-w[a]); c < best {
				best, at = c, a
			}
		}
		h.next[i] = best
		h.from[j][i] = int32(at)
		h.layer(j, lo, i-1, first, at)
		lo, first = i+1, at
	}
}

// prepare finds the code of the nearest entry of the table, an ascending list of
// fp16 values, for every weight; of two equally near, that of the lower.
func (h *histogram) prepare(table []uint16) (err float64) {
	c := 0
	h.each(func(k uint16) {
		x := half.ToF32(unkey(k))
		for c+1 < len(table) && abs(x-half.ToF32(table[c+1])) < abs(x-half.ToF32(table[c])) {
			c++
		}
		h.code[k] = byte(c)
		d := float64(x) - float64(half.ToF32(table[c]))
		err += float64(h.weight[k] * float64(d*d))
	})
	return err
}

func (h *histogram) assign(dst []byte, w []uint16) {
	for i, b := range w {
		dst[i] = h.code[key(b)]
	}
}

func grow(b []float64, n int) []float64 {
	if cap(b) < n {
		return make([]float64, n)
	}
	return b[:n]
}

func growInt(b []int32, n int) []int32 {
	if cap(b) < n {
		return make([]int32, n)
	}
	return b[:n]
}
