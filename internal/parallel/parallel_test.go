package parallel

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestRangesCoverOnce(t *testing.T) {
	for _, n := range []int{0, 1, 7, 64, 65, 1000} {
		for _, grain := range []int{1, 3, 64, 2000} {
			seen := make([]atomic.Int32, n)
			Ranges(n, grain, func(lo, hi int) {
				if lo%grain != 0 || hi-lo > grain {
					t.Errorf("%d by %d: range [%d, %d)", n, grain, lo, hi)
				}
				for i := lo; i < hi; i++ {
					seen[i].Add(1)
				}
			})
			for i := range seen {
				if c := seen[i].Load(); c != 1 {
					t.Fatalf("%d by %d: item %d came %d times", n, grain, i, c)
				}
			}
		}
	}
}

func TestEach(t *testing.T) {
	seen := make([]atomic.Int32, 100)
	if err := Each(len(seen), func(w *[]int, i int) error {
		*w = append(*w, i)
		seen[i].Add(1)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i := range seen {
		if c := seen[i].Load(); c != 1 {
			t.Errorf("item %d came %d times", i, c)
		}
	}
	var calls atomic.Int32
	want := errors.New("no")
	if err := Each(1<<20, func(*int, int) error { calls.Add(1); return want }); err != want {
		t.Errorf("error %v", err)
	}
	if n := calls.Load(); n > 1<<10 {
		t.Errorf("%d calls after an error", n)
	}
}
