package parity

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/parity/reference"
)

func TestProductIsSpotChecked(t *testing.T) {
	const T, n, k = 9, 50, 33
	rnd := rand.New(rand.NewPCG(1, 2))
	fill := func(x []float32) []float32 {
		for i := range x {
			x[i] = float32(rnd.NormFloat64())
		}
		return x
	}
	x, y := reference.NewMatrix(T, k), reference.NewMatrix(T, n)
	fill(x.Data)
	w := fill(make([]float32, (n+3)*k))
	bias := fill(make([]float32, n))
	if err := product(y, x, checkpoint.NewFloat32("w", []int{n + 3, k}, w), 3, bias); err != nil {
		t.Fatal(err)
	}
	for r := range T {
		for j := range n {
			sum := float64(bias[j])
			for i, v := range x.Row(r) {
				sum += float64(v) * float64(w[(3+j)*k+i])
			}
			if d := sum - float64(y.Row(r)[j]); d > 1e-5 || d < -1e-5 {
				t.Fatalf("row %d, column %d: %v, want %v", r, j, y.Row(r)[j], sum)
			}
			y.Row(r)[j] -= bias[j]
		}
	}
	if err := spotCheck(y, x, w[3*k:], 0, n); err != nil {
		t.Fatal(err)
	}
	for i := range y.Row(4) {
		y.Row(4)[i] += 0.01
	}
	err := spotCheck(y, x, w[3*k:], 0, n)
	if err == nil || !strings.Contains(err.Error(), "row 4, column 28") {
		t.Errorf("a wrong row passes: %v", err)
	}
}
