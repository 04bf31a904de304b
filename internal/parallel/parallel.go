// Package parallel spreads loops over all cores.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Ranges calls f for consecutive ranges of at most grain items that cover [0, n).
// Ranges do not depend on the number of cores; f must write only what belongs to its
// range.
func Ranges(n, grain int, f func(lo, hi int)) {
	var next atomic.Int64
	work := func() {
		for {
			lo := (int(next.Add(1)) - 1) * grain
			if lo >= n {
				return
			}
			f(lo, min(lo+grain, n))
		}
	}
	workers := min(runtime.GOMAXPROCS(0), (n+grain-1)/grain)
	if workers <= 1 {
		work()
		return
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(work)
	}
	wg.Wait()
}

// Each calls f for 0 to n−1, with memory W that belongs to one goroutine. After an
// error no further call begins; the first is returned.
func Each[W any](n int, f func(w *W, i int) error) error {
	var (
		next  atomic.Int64
		once  sync.Once
		wg    sync.WaitGroup
		first error
	)
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			var w W
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(&w, i); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n))
				}
			}
		})
	}
	wg.Wait()
	return first
}
