package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A long product of several rows is computed in parts of v; a row alone is
// not. Both are the same sum.
func TestMulNNInPartsIsOneSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, l := range levels {
		t.Run(l.name, func(t *testing.T) {
			was := cur
			cur = l
			defer func() { cur = was }()
			for _, s := range [][3]int{{3, 700, 64}, {7, 333, 256}, {4, 65, 512}, {2, 2000, 16}, {5, 900, 72}} {
				rows, c, n := s[0], s[1], s[2]
				p, v := make([]float32, rows*c), make([]float32, c*n)
				for i := range p {
					p[i] = r.Float32() - 0.5
				}
				for i := range v {
					v[i] = r.Float32() - 0.5
				}
				together, alone := make([]float32, rows*n), make([]float32, rows*n)
				MulNN(together, n, p, c, rows, v, n, c, n)
				for i := range rows {
					MulNN(alone[i*n:], n, p[i*c:], c, 1, v, n, c, n)
				}
				if !slices.Equal(together, alone) {
					t.Errorf("%d rows, %d by %d: other bits together than alone", rows, c, n)
				}
			}
		})
	}
}
