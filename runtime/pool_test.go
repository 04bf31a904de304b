package runtime

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

func TestPoolCoversEveryElementOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 7} {
		p := newPool(threads)
		for _, n := range []int{0, 1, 5, 100, 1001} {
			for _, grain := range []int{0, 1, 7, 5000} {
				hits := make([]atomic.Int32, n)
				p.run(n, grain, func(lo, hi int) {
					for i := lo; i < hi; i++ {
						hits[i].Add(1)
					}
				})
				for i := range hits {
					if h := hits[i].Load(); h != 1 {
						t.Fatalf("threads %d, n %d, grain %d: element %d ran %d times", threads, n, grain, i, h)
					}
				}
			}
		}
	}
}

func TestPoolServesNestedAndConcurrentLoops(t *testing.T) {
	p := newPool(3)
	var total atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p.run(16, 1, func(lo, hi int) {
				p.run(hi-lo, 1, func(a, b int) { total.Add(int64(b - a)) })
			})
		})
	}
	wg.Wait()
	if total.Load() != 8*16 {
		t.Errorf("%d elements ran, want %d", total.Load(), 8*16)
	}
}

func TestPoolHandsPanicsToTheCaller(t *testing.T) {
	p := newPool(2)
	for range 10 {
		func() {
			defer func() {
				if r := recover(); fmt.Sprint(r) != "element 3" {
					t.Errorf("recovered %v", r)
				}
			}()
			p.run(8, 1, func(lo, hi int) {
				if lo <= 3 && 3 < hi {
					panic("element 3")
				}
			})
		}()
	}
}
