package runtime

import (
	"time"

	"github.com/smelt-go/smelt/internal/kernel"
)

// ReadBandwidth measures how fast this machine reads memory with the given
// number of threads (0: GOMAXPROCS), in bytes a second: the best of a few
// passes over an array that no cache holds. It takes about a fifth of a
// second and 256 MB. Single steps of a decoder cannot be faster than their
// weights are read.
func ReadBandwidth(threads int) float64 {
	const bytes, passes = 256 << 20, 10
	p := newPool(threads)
	r := &reading{x: make([]float32, bytes/4), top: make([]float32, bytes/readingUnit)}
	for i := range r.x { // not a page of zeros that all addresses share
		r.x[i] = float32(i & 0xff)
	}
	best := time.Duration(1 << 62)
	for range passes {
		start := time.Now()
		p.do(bytes/readingUnit, 1, r)
		best = min(best, time.Since(start))
	}
	return bytes / best.Seconds()
}

// readingUnit is the number of bytes of a unit of work.
const readingUnit = 1 << 20

type reading struct{ x, top []float32 }

func (r *reading) run(lo, hi int) {
	const n = readingUnit / 4
	for i := lo; i < hi; i++ {
		r.top[i] = kernel.Max(r.x[i*n : (i+1)*n])
	}
}
