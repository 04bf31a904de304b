package conversion

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/parity/reference"
)

// productBytes is how much of a matrix is widened to float32 at a time: it
// stays in the second-level cache while all tokens are multiplied by it.
const productBytes = 192 << 10

// product computes y = x·wᵀ + bias from the stored form of w, block by block
// on all cores. Sums run in 16 lanes and no product is fused with a sum, so the
// bits depend neither on the processor nor on the number of cores.
func product(y, x *reference.Matrix, w checkpoint.Tensor, first int, bias []float32) error {
	rows := max(4, productBytes/4/x.Cols/4*4)
	blocks := (y.Cols + rows - 1) / rows
	errs := make([]error, blocks)
	var next atomic.Int64
	work := func() {
		buf := make([]float32, rows*x.Cols)
		for {
			block := int(next.Add(1)) - 1
			if block >= blocks {
				return
			}
			lo, hi := block*rows, min((block+1)*rows, y.Cols)
			wide := buf[:(hi-lo)*x.Cols]
			if errs[block] = widen(wide, w, (first+lo)*x.Cols); errs[block] != nil {
				return
			}
			kernel.MulExact(y.Data[lo:], y.Cols, x.Data, x.Cols, x.Rows, wide, x.Cols, hi-lo, x.Cols)
			if bias != nil {
				for t := range y.Rows {
					out := y.Row(t)[lo:hi]
					kernel.Add(out, out, bias[lo:hi])
				}
			}
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), blocks) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// widen reads elements from the given one on and refuses those that are not
// finite.
func widen(dst []float32, w checkpoint.Tensor, from int) error {
	if err := w.ReadFloat32(dst, from); err != nil {
		return err
	}
	if kernel.MaxBits(dst) < infinity {
		return nil
	}
	for i, x := range dst {
		if math.Float32bits(x)&infinity == infinity {
			return fmt.Errorf("tensor %q: element %d is %v (a damaged or diverged checkpoint?)", w.Name(), from+i, x)
		}
	}
	return nil
}
