package main

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/smelt-go/smelt/internal/kernel"
)

// Sink keeps results alive.
var Sink float32

// linger is how long a helper looks for work before it sleeps, which is what
// the threads of OpenBLAS and those of smelt's runtime do, too: waking a
// thread takes as long as a small product.
const linger = 2 * time.Millisecond

var helpers []chan func()

func help(work chan func()) {
	for f := range work {
		for f != nil {
			f()
			f = poll(work)
		}
	}
}

func poll(work chan func()) func() {
	for start := time.Now(); time.Since(start) < linger; {
		select {
		case f := <-work:
			return f
		default:
		}
	}
	return nil
}

// split runs f on n ranges of [0,total), each in a goroutine of its own.
func split(n, total int, f func(part, lo, hi int)) {
	for len(helpers) < n-1 {
		helpers = append(helpers, make(chan func(), 1))
		go help(helpers[len(helpers)-1])
	}
	var left atomic.Int32
	left.Store(int32(n - 1))
	for i := 1; i < n; i++ {
		helpers[i-1] <- func() {
			f(i, i*total/n, (i+1)*total/n)
			left.Add(-1)
		}
	}
	f(0, 0, total/n)
	for left.Load() > 0 {
	}
}

// median times f reps times, after once for the caches.
func median(reps int, f func()) float64 {
	f()
	took := make([]float64, max(reps, 1))
	for i := range took {
		start := time.Now()
		f()
		took[i] = time.Since(start).Seconds()
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// bandwidth reads r.Bytes of memory with r.Threads threads in two ways, a
// plain Go loop of integer sums and a vector maximum of floats, and reports
// the faster one: what a program that only reads can have.
func bandwidth(r *request) (answer, error) {
	if r.Bytes < 1<<20 || r.Threads < 1 {
		return nil, fmt.Errorf("worker: bandwidth of %d bytes by %d threads", r.Bytes, r.Threads)
	}
	ints := make([]uint64, r.Bytes/8)
	floats := make([]float32, r.Bytes/4)
	for i := range ints {
		ints[i] = uint64(i)
	}
	for i := range floats {
		floats[i] = float32(i & 1023)
	}
	part := make([]float32, r.Threads)
	sum := median(r.Reps, func() {
		split(r.Threads, len(ints), func(p, lo, hi int) { part[p] = float32(sumOf(ints[lo:hi])) })
	})
	top := median(r.Reps, func() {
		split(r.Threads, len(floats), func(p, lo, hi int) { part[p] = kernel.Max(floats[lo:hi]) })
	})
	Sink += part[0]
	return answer{"seconds": min(sum, top), "sum_seconds": sum, "max_seconds": top}, nil
}

func sumOf(x []uint64) uint64 {
	var a, b, c, d uint64
	for ; len(x) >= 8; x = x[8:] {
		a += x[0] + x[1]
		b += x[2] + x[3]
		c += x[4] + x[5]
		d += x[6] + x[7]
	}
	return a + b + c + d
}

// gemv multiplies an fp16 matrix of r.M rows of r.K by a vector.
func gemv(r *request) (answer, error) {
	if r.M < 1 || r.K < 1 || r.Threads < 1 {
		return nil, fmt.Errorf("worker: gemv of %d rows of %d by %d threads", r.M, r.K, r.Threads)
	}
	w := make([]uint16, r.M*r.K)
	row := make([]uint16, r.K)
	kernel.F32ToF16(row, ramp(r.K))
	for i := range r.M {
		copy(w[i*r.K:], row)
	}
	x, y := ramp(r.K), make([]float32, r.M)
	s := median(r.Reps, func() {
		split(r.Threads, r.M, func(_, lo, hi int) {
			kernel.MulF16(y[lo:hi], r.M, x, r.K, 1, w[lo*r.K:hi*r.K], r.K, hi-lo, r.K)
		})
	})
	Sink += y[0]
	return answer{"seconds": s}, nil
}

// gemm multiplies x [r.M, r.K] by the transpose of w [r.N, r.K] in float32.
func gemm(r *request) (answer, error) {
	if r.M < 1 || r.N < 1 || r.K < 1 || r.Threads < 1 {
		return nil, fmt.Errorf("worker: gemm %d×%d×%d by %d threads", r.M, r.N, r.K, r.Threads)
	}
	x, w, y := ramp(r.M*r.K), ramp(r.N*r.K), make([]float32, r.M*r.N)
	s := median(r.Reps, func() {
		split(r.Threads, r.N, func(_, lo, hi int) {
			kernel.MulF32(y[lo:], r.N, x, r.K, r.M, w[lo*r.K:hi*r.K], r.K, hi-lo, r.K)
		})
	})
	Sink += y[0]
	return answer{"seconds": s}, nil
}

// ramp makes n small numbers around zero.
func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i*7919%1021-510) / 4096
	}
	return x
}
