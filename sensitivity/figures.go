package sensitivity

import (
	"crypto/sha256"
	"math"
	"strings"

	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// meanError is the mean and its standard error.
func meanError(x []float64) (mean, se float64) {
	n := float64(len(x))
	for _, v := range x {
		mean += v
	}
	mean /= n
	var s float64
	for _, v := range x {
		s += float64((v - mean) * (v - mean))
	}
	if n < 2 {
		return mean, 0
	}
	return mean, math.Sqrt(s / (n - 1) / n)
}

// outputEnergy is ‖x·(w − v)ᵀ‖², v nil for 0.
func outputEnergy(x decoder.Matrix, w, v []float32) float64 {
	const rows = 32
	out := len(w) / x.Cols
	sums := make([]float64, (out+rows-1)/rows)
	_ = parallel.Each(len(sums), func(ws *workspace, b int) error {
		n := min(rows, out-b*rows)
		part := w[b*rows*x.Cols : (b*rows+n)*x.Cols]
		if v != nil {
			ws.rows = grown(ws.rows, len(part))
			kernel.Sub(ws.rows, part, v[b*rows*x.Cols:(b*rows+n)*x.Cols])
			part = ws.rows
		}
		ws.z = grown(ws.z, x.Rows*n)
		kernel.MulF32(ws.z, n, x.Data, x.Cols, x.Rows, part, x.Cols, n, x.Cols)
		for i := range x.Rows {
			sums[b] += float64(kernel.SumSquares(ws.z[i*n : (i+1)*n]))
		}
		return nil
	})
	var total float64
	for _, e := range sums {
		total += e
	}
	return total
}

func nameSeed(name string) uint64 {
	sum := sha256.Sum256([]byte(strings.TrimSpace(name)))
	var x uint64
	for _, b := range sum[:8] {
		x = x<<8 | uint64(b)
	}
	return x
}
