package kmeans

import (
	"math"
	"math/bits"
	"slices"

	"github.com/smelt-go/smelt/internal/bitpack"
	"github.com/smelt-go/smelt/internal/half"
)

// Histogram counts fp16 weights by value: all that k-means in one dimension
// needs to know of them. The zero value is empty. Values must be finite.
//
// Counters are indexed by slot: the bit pattern with its three lowest bits in
// front. Those are zero in normal weights that were bfloat16 once, whose
// counters then fit the first-level cache.
type Histogram struct {
	count   [1 << 16]uint32
	touched [1 << 10]bool // blocks of 64 counters that are in use
	weight  []float64     // importance of the weights of a slot; empty while all have 1
	order   []uint16      // patterns that occur, by ascending value; empty if unknown
	extra   []uint16
	code    [1 << 16]byte // by slot, from Prepare

	sums   Sums // of the weights with the table that Prepare got
	solver solver
}

// Sums of a table's weights, all counted alike.
type Sums struct {
	Elements int64
	Energy   float64 // Σx²
	Error    float64 // Σ(x − nearest entry)²
}

func slot(b uint16) uint16   { return bits.RotateLeft16(b, 13) }
func unslot(s uint16) uint16 { return bits.RotateLeft16(s, 3) }

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

// Reset empties h.
func (h *Histogram) Reset() {
	for i, used := range h.touched {
		if used {
			clear(h.count[i<<6:][:64])
		}
	}
	clear(h.touched[:])
	h.weight, h.order = h.weight[:0], h.order[:0]
}

// Add counts weights; importance is that of each, nil for 1.
func (h *Histogram) Add(w []uint16, importance []float32) {
	h.order = h.order[:0]
	if importance == nil && len(h.weight) == 0 {
		for _, b := range w {
			s := slot(b)
			h.count[s]++
			h.touched[s>>6] = true
		}
		return
	}
	if len(h.weight) == 0 {
		if h.weight == nil {
			h.weight = make([]float64, 1<<16)
		}
		h.weight = h.weight[:1<<16]
		for s, c := range h.count {
			h.weight[s] = float64(c)
		}
	}
	for i, b := range w {
		s, d := slot(b), 1.0
		if importance != nil {
			d = float64(importance[i])
		}
		h.count[s]++
		h.touched[s>>6] = true
		h.weight[s] += d
	}
}

// Merge adds what another Histogram has counted.
func (h *Histogram) Merge(o *Histogram) {
	h.order = h.order[:0]
	for i, used := range o.touched {
		if !used {
			continue
		}
		h.touched[i] = true
		for s := i << 6; s < i<<6+64; s++ {
			h.count[s] += o.count[s]
			if len(h.weight) > 0 {
				h.weight[s] += o.weight[s]
			}
		}
	}
}

// Values lists the patterns that occur, by ascending value.
func (h *Histogram) Values() []uint16 {
	if len(h.order) > 0 {
		return h.order
	}
	h.extra = h.extra[:0]
	for i := 1 << 13 >> 6; i < len(h.touched); i++ {
		if h.touched[i] {
			for s := i << 6; s < i<<6+64; s++ {
				if h.count[s] != 0 {
					h.extra = append(h.extra, key(unslot(uint16(s))))
				}
			}
		}
	}
	if len(h.extra) > 1<<10 { // as many as all the rest: no need to merge
		for k := range 1 << 16 {
			if b := unkey(uint16(k)); h.count[slot(b)] != 0 {
				h.order = append(h.order, b)
			}
		}
		return h.order
	}
	slices.Sort(h.extra)
	extra := h.extra
	put := func(b uint16) {
		for k := key(b); len(extra) > 0 && extra[0] < k; extra = extra[1:] {
			h.order = append(h.order, unkey(extra[0]))
		}
		h.order = append(h.order, b)
	}
	for i := 1<<7 - 1; i >= 1<<6; i-- { // negative, large magnitudes first
		if h.touched[i] {
			for s := i<<6 + 63; s >= i<<6; s-- {
				if h.count[s] != 0 {
					put(uint16(s) << 3)
				}
			}
		}
	}
	for i := range 1 << 6 {
		if h.touched[i] {
			for s := i << 6; s < i<<6+64; s++ {
				if h.count[s] != 0 {
					put(uint16(s) << 3)
				}
			}
		}
	}
	for _, k := range extra {
		h.order = append(h.order, unkey(k))
	}
	return h.order
}

// of is the importance of a pattern.
func (h *Histogram) of(b uint16) float64 {
	if len(h.weight) > 0 {
		return h.weight[slot(b)]
	}
	return float64(h.count[slot(b)])
}

// load hands distinct values and their importance to the solver.
func (h *Histogram) load() {
	h.solver.reset()
	for _, b := range h.Values() {
		h.solver.push(float64(half.ToF32(b)), h.of(b))
	}
}

// Fit returns the k centroids, ascending, that minimise Σ weight·(x − nearest)²
// over all tables of k numbers, and that minimum. There are fewer centroids if
// there are fewer values.
func (h *Histogram) Fit(k int) (centroids []float64, err float64) {
	h.load()
	return h.solver.solve(k)
}

// Prepare finds the code of the nearest entry of the table, an ascending list of
// fp16 values, for every weight; of two equally near, that of the lower.
func (h *Histogram) Prepare(table []uint16) (err float64) {
	h.sums = Sums{}
	if len(table) == 0 {
		table = []uint16{0}
	}
	c := 0
	here := half.ToF32(table[0])
	for _, b := range h.Values() {
		x := half.ToF32(b)
		for c+1 < len(table) {
			next := half.ToF32(table[c+1])
			if abs(x-next) >= abs(x-here) {
				break
			}
			c, here = c+1, next
		}
		h.code[slot(b)] = byte(c)
		d, n := float64(x)-float64(here), h.count[slot(b)]
		h.sums.Elements += int64(n)
		h.sums.Energy += float64(float64(n) * float64(float64(x)*float64(x)))
		h.sums.Error += float64(float64(n) * float64(d*d))
		err += float64(h.of(b) * float64(d*d))
	}
	return err
}

// Assign stores the code of every weight, which must have been added before
// Prepare.
func (h *Histogram) Assign(dst []byte, w []uint16) {
	dst = dst[:len(w)]
	for i, b := range w {
		dst[i] = h.code[slot(b)]
	}
}

// Pack is Assign with codes packed as one stream, the first in the lowest bits.
// The number of weights must be a multiple of 8.
func (h *Histogram) Pack(dst []byte, w []uint16, width int) {
	if width == 4 {
		for len(w) >= 4 && len(dst) >= 2 {
			a := uint(h.code[slot(w[0])]) | uint(h.code[slot(w[1])])<<4
			b := uint(h.code[slot(w[2])]) | uint(h.code[slot(w[3])])<<4
			dst[0], dst[1] = byte(a), byte(b)
			w, dst = w[4:], dst[2:]
		}
		return
	}
	var codes [1 << 10]byte
	for len(w) > 0 {
		n := min(len(w), len(codes))
		h.Assign(codes[:n], w[:n])
		bitpack.Pack(dst, codes[:n], width)
		w, dst = w[n:], dst[n*width/8:]
	}
}

// Code is what Assign stores for a weight.
func (h *Histogram) Code(w uint16) byte { return h.code[slot(w)] }

// Sums are those of the last Prepare.
func (h *Histogram) Sums() Sums { return h.sums }

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
