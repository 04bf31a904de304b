package parity

import (
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/parity/reference"
)

// spotTolerance bounds the difference of a kernel's sum from a plain one,
// relative to the sum of magnitudes: float32 sums in another order.
const spotTolerance = 1e-5

// product is the reference decoder's y = x·wᵀ + bias, by the kernels that the
// judged bundle runs on too. So that a wrong kernel cannot hide on both sides,
// elements of every block are computed again by a plain loop in float64 and must
// agree.
func product(y, x *reference.Matrix, w checkpoint.Tensor, first int, bias []float32) error {
	cores := runtime.GOMAXPROCS(0)
	rows := max(16, min((2<<20)/4/x.Cols, (y.Cols+cores-1)/cores)+15) &^ 15
	var g errgroup.Group
	g.SetLimit(cores)
	for lo := 0; lo < y.Cols; lo += rows {
		g.Go(func() error {
			n := min(rows, y.Cols-lo)
			wide := make([]float32, n*x.Cols)
			if err := w.ReadFloat32(wide, (first+lo)*x.Cols); err != nil {
				return err
			}
			kernel.MulF32(y.Data[lo:], y.Cols, x.Data, x.Cols, x.Rows, wide, x.Cols, n, x.Cols)
			if err := spotCheck(y, x, wide, lo, n); err != nil {
				return fmt.Errorf("parity: tensor %q: %w", w.Name(), err)
			}
			if bias != nil {
				for t := range y.Rows {
					out := y.Row(t)[lo : lo+n]
					kernel.Add(out, out, bias[lo:lo+n])
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// spotCheck computes one element of every row again, another column for each,
// so that a block of more rows than columns is seen everywhere.
func spotCheck(y, x *reference.Matrix, wide []float32, lo, n int) error {
	for t := range y.Rows {
		j := (t*7 + lo/n) % n
		row, col := x.Row(t), wide[j*x.Cols:(j+1)*x.Cols]
		var sum, size float64
		for i, v := range row {
			p := float64(v) * float64(col[i])
			sum += p
			size += math.Abs(p)
		}
		got := float64(y.Row(t)[lo+j])
		if d := math.Abs(got - sum); d <= spotTolerance*size || sum-sum != 0 && math.IsNaN(got) == math.IsNaN(sum) {
			continue
		}
		return fmt.Errorf("row %d, column %d: a kernel says %v, a plain sum %v (a defect of %s kernels on this processor? set GODEBUG=cpu.all=off)", t, lo+j, got, sum, kernel.Level())
	}
	return nil
}
