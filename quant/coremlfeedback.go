package quant

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/internal/half"
)

// FeedbackGroup is the group that a Feedback for the form must have: columns that
// share a scale stay together.
func (m *Form) FeedbackGroup() int {
	if l := m.Format.Linear(); m.Format.Codec == "linear" && l.Granularity == PerBlock {
		return l.Block
	}
	return 0
}

// checkFeedback refuses forms that error feedback does not know.
func (f Format) checkFeedback() error {
	switch {
	case !f.Method.Calibrated():
		return nil
	case f.sparse(), f.Codec == "palette" && (f.vector() > 1 || f.Tables != "" && f.Tables != "kmeans"), f.Codec == "linear" && f.Linear().Granularity == PerTensor:
		return fmt.Errorf("method %s is for palettes of scalars and integers with a scale a row or block, nothing left out (want rtn or refit)", f.Method)
	}
	return nil
}

// roundRows is how many rows are coded together where any number will do.
const roundRows = 256

// sampleRows is the number of rows from which the table of a larger group is
// found.
const sampleRows = 2048

// feedbackTables is how many tables of a group are tried.
const feedbackTables = 4

// palettesFeedback codes scalars with error feedback.
//
// The first table of a group is the best one for its weights, with errors in a
// column weighted by the column's pivot. With a table, rows are coded with
// feedback; what the columns would have liked to be, feedback included, is what the
// next table is made for. Of a few tables the one with the least tr(E·H·Eᵀ) is
// taken, or that of method rtn, coded without feedback, where none is better.
func (e *formEncoder) palettesFeedback() error {
	p := &paletteEncoder{formEncoder: e, group: e.groupRows()}
	groups := e.Rows / p.group
	p.tables = make([][]uint16, groups)
	plain := make([][]uint16, groups) // tables of method rtn
	keep := make([]bool, groups)      // coded with them
	p.at.table = 1
	if e.Format.ChannelScale {
		if err := p.findScales(); err != nil {
			return err
		}
	}
	err := e.each(groups, func() func(int, *Stats) error {
		pal := NewPalettizer()
		return func(g int, _ *Stats) error {
			x, scale, err := p.sample(g)
			if err != nil {
				return err
			}
			p.tables[g], plain[g], keep[g] = e.fitTable(pal, x, scale)
			return nil
		}
	})
	if err != nil {
		return err
	}
	if e.Format.Table == "int8" {
		p.shrinkTables()
	} else {
		for g, t := range p.tables {
			for i, b := range t {
				putHalf(e.data[1], g<<e.Format.Bits+i, b)
			}
		}
	}
	unit := min(p.group, roundRows)
	for p.group%unit != 0 {
		unit--
	}
	codes := make([]byte, e.Rows*e.Cols)
	err = e.each(e.Rows/unit, func() func(int, *Stats) error {
		return func(u int, s *Stats) error {
			first := u * unit
			g := first / p.group
			return p.final(first, unit, newEntries(p.tables[g]), newEntries(plain[g]), keep[g], codes[first*e.Cols:][:unit*e.Cols], s)
		}
	})
	packAll(e.data[0], codes, e.Format.Bits)
	return err
}

// sample reads a group's rows, or an even part of them, over their scales.
func (p *paletteEncoder) sample(g int) (x, scale []float32, err error) {
	step := (p.group + sampleRows - 1) / sampleRows
	n := p.group / step
	x, scale = make([]float32, n*p.Cols), make([]float32, n)
	w := make([]uint16, p.Cols)
	for i := range n {
		row := g*p.group + i*step
		if err := p.read(w, row*p.Cols); err != nil {
			return nil, nil, err
		}
		scale[i] = p.divide(x[i*p.Cols:][:p.Cols], w, row)
	}
	return x, scale, nil
}

// divide stores a row over its scale, which it returns.
func (p *paletteEncoder) divide(dst []float32, w []uint16, row int) float32 {
	half.F16ToF32(dst, w)
	if p.scales == nil {
		return 1
	}
	s := half.ToF32(p.scales[row])
	for i := range dst {
		dst[i] /= s
	}
	return s
}

// fitTable finds a table for rows x with feedback, and that of method rtn; plain
// says that the latter is better.
func (e *formEncoder) fitTable(pal *Palettizer, x, scale []float32) (best, rtn []uint16, plain bool) {
	f := e.o.Feedback
	bits := e.Format.Bits
	rows := len(scale)
	table := func(weigh bool) []uint16 {
		pal.Reset()
		w := make([]uint16, e.Cols)
		d := make([]float32, e.Cols)
		for r := range rows {
			half.F32ToF16(w, x[r*e.Cols:][:e.Cols])
			for i, col := range f.order {
				d[col] = scale[r] * scale[r]
				if weigh {
					d[col] *= f.pivots[i]
				}
			}
			pal.h.Add(w, d)
		}
		t, _ := pal.Table(bits)
		return t
	}
	sum := func(decoded []float32) (s float64) {
		for r, l := range f.losses(x, decoded) {
			s += float64(float64(scale[r]) * float64(scale[r]) * l)
		}
		return s
	}
	rtn = table(false)
	decoded := slices.Clone(x)
	newEntries(rtn).round(decoded, nil)
	limit := sum(decoded)
	pivot := make([]float32, e.Cols) // by column
	for i, col := range f.order {
		pivot[col] = f.pivots[i]
	}
	least := math.Inf(1)
	next := table(true)
	w, d := make([]uint16, rows), make([]float32, rows)
	for range feedbackTables {
		near := newEntries(next)
		copy(decoded, x)
		pal.Reset()
		f.Round(decoded, func(col int, t []float32) {
			half.F32ToF16(w, t)
			for r, s := range scale {
				d[r] = pivot[col] * s * s
			}
			// A target beyond fp16 cannot be, but must not spoil the table.
			if !slices.ContainsFunc(w, func(b uint16) bool { return b&0x7c00 == 0x7c00 }) {
				pal.h.Add(w, d)
			}
			near.round(t, nil)
		})
		loss := sum(decoded)
		if loss < least {
			best, least = next, loss
		}
		next, _ = pal.Table(bits)
	}
	return best, rtn, !(least < limit)
}

// final codes rows with a table.
func (p *paletteEncoder) final(first, rows int, near, rtn *entries, plain bool, codes []byte, s *Stats) error {
	f := p.o.Feedback
	w := make([]uint16, rows*p.Cols)
	if err := p.read(w, first*p.Cols); err != nil {
		return err
	}
	x, scale := make([]float32, len(w)), make([]float32, rows)
	for r := range rows {
		scale[r] = p.divide(x[r*p.Cols:][:p.Cols], w[r*p.Cols:][:p.Cols], first+r)
	}
	decoded := slices.Clone(x)
	rtn.round(decoded, nil)
	losses := f.losses(x, decoded)
	if plain {
		near.round(decoded[:copy(decoded, x)], codes)
		s.Fallbacks += int64(rows)
	} else {
		copy(decoded, x)
		column := make([]byte, rows)
		f.Round(decoded, func(col int, t []float32) {
			near.round(t, column)
			for r, c := range column {
				codes[r*p.Cols+col] = c
			}
		})
	}
	energy, mine := f.losses(x, nil), f.losses(x, decoded)
	for r, k := range scale {
		k2 := float64(k) * float64(k)
		s.OutputRTN += float64(k2 * losses[r])
		s.OutputError += float64(k2 * mine[r])
		s.OutputEnergy += float64(k2 * energy[r])
		for i := r * p.Cols; i < (r+1)*p.Cols; i++ {
			v := half.ToF32(w[i])
			y := decoded[i]
			if p.scales != nil {
				y = h(k * y)
			}
			s.Energy += float64(float64(v) * float64(v))
			s.Error += float64(float64(v-y) * float64(v-y))
		}
	}
	s.Elements += int64(len(w))
	return nil
}

// entries are those of an ascending table.
type entries struct {
	value []float32
	edge  []float32 // halfway to the next
}

func newEntries(table []uint16) *entries {
	n := new(entries)
	for i, b := range table {
		v := half.ToF32(b)
		if i > 0 && v < n.value[i-1] { // unused entries
			break
		}
		n.value = append(n.value, v)
	}
	for i := range len(n.value) - 1 {
		n.edge = append(n.edge, (n.value[i]+n.value[i+1])/2)
	}
	return n
}

// round replaces numbers by the nearest entries; codes, if not nil, get their
// indices.
func (n *entries) round(x []float32, codes []byte) {
	for i, v := range x {
		lo, hi := 0, len(n.edge)
		for lo < hi {
			mid := int(uint(lo+hi) / 2)
			if v > n.edge[mid] {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		x[i] = n.value[lo]
		if codes != nil {
			codes[i] = byte(lo)
		}
	}
}
