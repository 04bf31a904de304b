package quant

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/internal/parallel"
)

// NewTurnedFeedback is NewFeedback for codecs that rotate rows before they code
// them, Turbo's: of the Hessian of the turned inputs, R·H·Rᵀ, where row j of R says
// what becomes of an input. Rows, errors and importances of such a Feedback are those
// of turned matrices; Solve alone is about matrices as they are, whatever the
// Feedback.
//
// Damping means the same as it does without a rotation, which keeps the mean of the
// diagonal.
func NewTurnedFeedback(h []float64, cols, group int, damping float64) (*Feedback, error) {
	if len(h) != cols*cols || cols < 1 {
		return nil, fmt.Errorf("quant: %d values are not a Hessian of %d columns", len(h), cols)
	}
	if turn(cols) < minTurn {
		return nil, fmt.Errorf("quant: runs of %d of %d columns are too short to rotate", turn(cols), cols)
	}
	f, err := newFeedback(&Feedback{turned: true}, turnHessian(h, cols), cols, group, damping)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// turnHessian is R·H·Rᵀ, from the lower triangle of h.
func turnHessian(h []float64, n int) []float64 {
	signs := Signs(turboSeed, n)
	a, b := make([]float64, n*n), make([]float64, n*n)
	const grain = 16
	parallel.Ranges(n, grain, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row := a[i*n : (i+1)*n]
			for j := range row {
				v := h[max(i, j)*n+min(i, j)]
				if signs[i] != signs[j] {
					v = -v
				}
				row[j] = v
			}
			hadamard64(row, turn(n))
		}
	})
	parallel.Ranges(n, grain, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row := b[i*n : (i+1)*n]
			for j := range row {
				row[j] = a[j*n+i]
			}
			hadamard64(row, turn(n))
		}
	})
	// Rounding may have left a little less than nothing of what no input shows.
	for i := range n {
		b[i*n+i] = max(b[i*n+i], 0)
	}
	return b
}

// hadamard64 is Hadamard in float64.
func hadamard64(x []float64, n int) {
	scale := 1 / math.Sqrt(float64(n))
	for at := 0; at+n <= len(x); at += n {
		v := x[at : at+n]
		for step := 1; step < n; step *= 2 {
			for i := 0; i < n; i += 2 * step {
				lo, hi := v[i:i+step], v[i+step:i+2*step]
				for j, a := range lo {
					b := hi[j]
					lo[j], hi[j] = a+b, a-b
				}
			}
		}
		for i := range v {
			v[i] *= scale
		}
	}
}

// turnRows turns rows of so many columns: x·Rᵀ.
func turnRows(w []float32, cols int) {
	signs := Signs(turboSeed, cols)
	for at := 0; at < len(w); at += cols {
		row := w[at : at+cols]
		flip(row, signs)
		Hadamard(row, turn(cols))
	}
}

// turnRowsBack is the inverse of turnRows.
func turnRowsBack(w []float32, cols int) {
	signs := Signs(turboSeed, cols)
	for at := 0; at < len(w); at += cols {
		row := w[at : at+cols]
		Hadamard(row, turn(cols))
		flip(row, signs)
	}
}
