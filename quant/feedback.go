package quant

import (
	"errors"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/internal/kernel"
)

// Feedback is what error feedback knows about a matrix: the Hessian H = Σ x·xᵀ
// of its inputs, factored. Codecs get it through Options and Rows.
//
// Columns are coded one after the other. With H (damped, in the order of
// coding) = U·D·Uᵀ, U unit upper triangular, the error tr(E·H·Eᵀ) of a row with
// errors e is
//
//	Σ D_j·(e·U)_j²,
//
// so column j is best rounded from its weight plus Σ_{i<j} e_i·U_ij, which is
// known when its turn comes (LDLQ: Chee et al. 2023, equivalent to GPTQ: Frantar
// et al. 2022). D_j is what an error in column j costs when all later columns make
// up for it.
//
// Columns are coded with the largest H_jj first. Columns of a group of the format
// stay together: groups go by the sum of their H_jj, columns by their own inside.
//
// A Feedback is read only and serves several goroutines.
type Feedback struct {
	cols, group int
	order       []int32   // columns in the order they are coded
	lower       []float32 // Uᵀ: row j has what earlier columns i < j do to it
	inverse     []float32 // of Uᵀ, its blocks on the diagonal: row j has a block's columns
	pivots      []float32 // D

	hessian []float32 // damped, in order
	local   local     // of the blocks on its diagonal
	diag    []float32 // H_jj by column
	damping float64
	turned  bool // see NewTurnedFeedback
}

// NewFeedback factors a Hessian [cols, cols], of which the lower triangle is
// read, for codecs with groups of so many columns; group 0 stands for codecs
// without. damping times the mean of the diagonal is added to it; 0.01 is usual.
// If that does not make it positive definite, ten times as much is tried, and so
// on; Damping tells.
func NewFeedback(h []float64, cols, group int, damping float64) (*Feedback, error) {
	return newFeedback(new(Feedback), h, cols, group, damping)
}

func newFeedback(f *Feedback, h []float64, cols, group int, damping float64) (*Feedback, error) {
	if group == 0 {
		group = cols
	}
	if len(h) != cols*cols || cols < 1 || cols%group != 0 {
		return nil, fmt.Errorf("quant: %d values are not a Hessian of %d columns in groups of %d", len(h), cols, group)
	}
	if damping <= 0 {
		return nil, fmt.Errorf("quant: damping %g: want more than 0", damping)
	}
	f.cols, f.group, f.diag = cols, group, make([]float32, cols)
	var mean float64
	for i := range cols {
		d := h[i*cols+i]
		if d < 0 || d-d != 0 {
			return nil, fmt.Errorf("quant: Hessian: element %d of the diagonal is %g", i, d)
		}
		f.diag[i] = float32(d)
		mean += d / float64(cols)
	}
	if mean == 0 {
		return nil, errors.New("quant: the Hessian is zero: nothing was seen in calibration")
	}
	f.sort()
	for f.damping = damping; f.damping <= 10; f.damping *= 10 {
		if f.factor(h, f.damping*mean) {
			return f, nil
		}
	}
	return nil, errors.New("quant: the Hessian cannot be factored")
}

// Cols is the number of columns of the matrices.
func (f *Feedback) Cols() int { return f.cols }

// Damping is what was added to the diagonal, over its mean.
func (f *Feedback) Damping() float64 { return f.damping }

// Importance is the diagonal of the Hessian before damping, by column: what
// Rows.Importance takes.
func (f *Feedback) Importance() []float32 { return f.diag }

// Order lists the columns in the order they are coded.
func (f *Feedback) Order() []int32 { return f.order }

// sort finds the order.
func (f *Feedback) sort() {
	groups := make([]int32, f.cols/f.group)
	sums := make([]float64, len(groups))
	for g := range groups {
		groups[g] = int32(g)
		for _, d := range f.diag[g*f.group : (g+1)*f.group] {
			sums[g] += float64(d)
		}
	}
	slices.SortStableFunc(groups, func(a, b int32) int { return descending(sums[a], sums[b]) })
	for _, g := range groups {
		at := len(f.order)
		for i := range f.group {
			f.order = append(f.order, g*int32(f.group)+int32(i))
		}
		slices.SortStableFunc(f.order[at:], func(a, b int32) int {
			return descending(float64(f.diag[a]), float64(f.diag[b]))
		})
	}
}

func descending(a, b float64) int {
	switch {
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}

// Columns are consecutive columns of a group, in the order of coding, on their
// way through RoundGroups.
type Columns struct {
	Index []int32 // of each column in the matrix
	// Rows is a multiple of 32: there are rows of zeros behind the matrix's own.
	Rows int
	// Targets [columns, Rows] are what the columns would best decode to, after
	// all columns before these. Decoded [columns, Rows] is for what the codec
	// makes of them, in float32.
	Targets, Decoded []float32
	// Feedback [columns, Stride] has in row j the factors by which the errors,
	// target minus decoded, of columns i < j of this block are added to target
	// j, and 1 for j itself; the sum, minus what is decoded, costs Pivots[j]
	// times its square.
	Feedback []float32
	Stride   int
	Pivots   []float32
}

// roundBlock is how many columns of a group without end RoundGroups takes at once.
const roundBlock = 64

// block is how many columns are coded between one product and the next.
func (f *Feedback) block() int {
	if f.group > maxGroup && !(f.turned && f.group <= maxTurboGroup) {
		return roundBlock
	}
	return f.group
}

// RoundGroups codes rows of a matrix w [rows, cols] and replaces them by what will
// be decoded. f is called for one group after the other (for up to 64 columns of
// one, where there are no groups), and has to fill c.Decoded from c.Targets,
// heeding the feedback inside the block.
func (f *Feedback) RoundGroups(w []float32, code func(c *Columns)) {
	own := len(w) / f.cols
	rows := (own + lanes - 1) / lanes * lanes
	wt := make([]float32, f.cols*rows) // weights, then errors, in order
	for k, col := range f.order {
		for r := range own {
			wt[k*rows+r] = w[r*f.cols+int(col)]
		}
	}
	size := f.block()
	targets, decoded := make([]float32, size*rows), make([]float32, size*rows)
	for at := 0; at < f.cols; at += size {
		n := min(size, f.cols-at)
		c := &Columns{Index: f.order[at : at+n], Rows: rows, Targets: targets[:n*rows], Decoded: decoded[:n*rows],
			Feedback: f.lower[at*f.cols+at:], Stride: f.cols, Pivots: f.pivots[at : at+n]}
		weights := wt[at*rows : (at+n)*rows]
		if at == 0 {
			copy(c.Targets, weights)
		} else {
			// What earlier columns add, turned into targets: the errors of the
			// block are measured from these, not from the weights.
			kernel.MulNN(c.Decoded, rows, f.lower[at*f.cols:], f.cols, n, wt, rows, at, rows)
			kernel.MulNN(c.Targets, rows, f.inverse[at*size:], size, n, c.Decoded, rows, n, rows)
			kernel.Add(c.Targets, c.Targets, weights)
		}
		code(c)
		kernel.Sub(weights, weights, c.Decoded)
		for i, col := range c.Index {
			for r := range own {
				w[r*f.cols+int(col)] = c.Decoded[i*rows+r]
			}
		}
	}
}

// Round is RoundGroups for codecs whose parameters are known before: round
// replaces targets of one column, one of each row, by what will be decoded.
func (f *Feedback) Round(w []float32, round func(col int, t []float32)) {
	own := len(w) / f.cols
	var sum []float32
	f.RoundGroups(w, func(c *Columns) {
		n := c.Rows
		if sum == nil {
			sum = make([]float32, n)
		}
		for j, col := range c.Index {
			out := c.Decoded[j*n : (j+1)*n]
			copy(out, c.Targets[j*n:(j+1)*n])
			if j > 0 {
				kernel.MulNN(sum, n, c.Feedback[j*c.Stride:], c.Stride, 1, c.Targets, n, j, n)
				kernel.Add(out, out, sum)
			}
			round(int(col), out[:own])
			// From here on c.Targets has the column's errors.
			kernel.Sub(c.Targets[j*n:(j+1)*n], c.Targets[j*n:(j+1)*n], out)
		}
	})
}

// feedbackBlock is how many of so many rows are coded together: enough to use a
// factor that lies in the cache, few enough to occupy all workers alike. Codes do
// not depend on it.
func feedbackBlock(rows, cols, workers int) int {
	n := min(max((1<<17)/cols, 64), 256) / lanes * lanes
	turns := (rows + n*workers - 1) / (n * workers)
	return max(lanes, min(n, (rows/(turns*workers)+lanes-1)/lanes*lanes))
}

// Loss is Σ D_j·(e·U)_j² over rows: the error tr(E·H·Eᵀ), damping included, of
// what was decoded for weights w, both [rows, cols].
func (f *Feedback) Loss(w, decoded []float32) (sum float64) {
	for _, l := range f.losses(w, decoded) {
		sum += l
	}
	return sum
}

// losses are those of each row; decoded nil stands for zeros.
func (f *Feedback) losses(w, decoded []float32) []float64 {
	rows := len(w) / f.cols
	out := make([]float64, rows)
	const step = 48
	var sums [step]float32
	e, eu := make([]float32, step*f.cols), make([]float32, step*f.cols)
	for first := 0; first < rows; first += step {
		n := min(step, rows-first)
		for r := range n {
			at := (first + r) * f.cols
			for k, col := range f.order {
				e[r*f.cols+k] = w[at+int(col)]
				if decoded != nil {
					e[r*f.cols+k] -= decoded[at+int(col)]
				}
			}
		}
		// Rows of Uᵀ have as many elements as their number says.
		const part = 128
		for at := 0; at < f.cols; at += part {
			m := min(part, f.cols-at)
			kernel.MulF32(eu[at:], f.cols, e, f.cols, n, f.lower[at*f.cols:], f.cols, m, at+m)
		}
		some := eu[:n*f.cols]
		kernel.Mul(some, some, some)
		kernel.MulF32(sums[:], 1, some, f.cols, n, f.pivots, f.cols, 1, f.cols)
		for r, v := range sums[:n] {
			out[first+r] = float64(v)
		}
	}
	return out
}
