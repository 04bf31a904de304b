package runtime

import (
	goruntime "runtime"
	"sync"
)

// pool runs loops over a fixed number of workers.
type pool struct{ n int }

func newPool(n int) *pool {
	if n <= 0 {
		n = goruntime.GOMAXPROCS(0)
	}
	return &pool{n}
}

func (p *pool) run(n, grain int, body func(lo, hi int)) {
	parts := min(p.n, n/max(grain, 1))
	if parts <= 1 {
		if n > 0 {
			body(0, n)
		}
		return
	}
	var wg sync.WaitGroup
	for i := range parts {
		lo, hi := i*n/parts, (i+1)*n/parts
		wg.Go(func() { body(lo, hi) })
	}
	wg.Wait()
}
