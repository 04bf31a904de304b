package quant

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/kmeans"
)

// Palette is Core ML's lookup table format, constexpr_lut_to_dense: a weight is
// stored as the index of an entry of a table of 2^Bits fp16 numbers. Rows are
// divided into groups of Rows consecutive ones, each with a table of its own.
//
// The tables are optimal: no other table of that size has a smaller squared
// error, up to the rounding of its entries to fp16. Size of a matrix [out, in]:
// Bits + 16·2^Bits/(Rows·in) bits a weight.
type Palette struct {
	Bits   int // 1, 2, 3, 4, 6 or 8
	Rows   int // 0: one table for all
	Vector int // rows that an index stands for; 0: 1
}

func (p Palette) String() string {
	name := fmt.Sprintf("lut%d", p.Bits)
	if p.Vector > 1 {
		name += fmt.Sprintf(" of %d-vectors", p.Vector)
	}
	if p.Rows == 0 {
		return name + " per tensor"
	}
	return fmt.Sprintf("%s per %d rows", name, p.Rows)
}

// Check refuses bits that do not exist and matrices that groups do not divide.
func (p Palette) Check(rows int) error {
	if !slices.Contains([]int{1, 2, 3, 4, 6, 8}, p.Bits) {
		return fmt.Errorf("quant: palettes have no %d-bit codes (want 1, 2, 3, 4, 6 or 8)", p.Bits)
	}
	if p.Rows < 0 || p.Rows > 0 && rows%p.Rows != 0 {
		return fmt.Errorf("quant: the first dimension is %d, which groups of %d rows do not divide (choose another group, or keep the tensor)", rows, p.Rows)
	}
	if group := max(p.Rows, 0); p.Vector > 1 && (rows%p.Vector != 0 || group%p.Vector != 0) {
		return fmt.Errorf("quant: vectors of %d rows do not divide %d rows in groups of %d (choose another group or vector, or keep the tensor)", p.Vector, rows, group)
	}
	return nil
}

// Palettizer finds tables. It is for one goroutine; its memory, about 1 MB, is
// reused from one table to the next.
type Palettizer struct{ h kmeans.Histogram }

// NewPalettizer returns a Palettizer.
func NewPalettizer() *Palettizer { return &Palettizer{} }

// Reset forgets the weights added.
func (p *Palettizer) Reset() { p.h.Reset() }

// Add counts fp16 weights that share a table. importance weights their squared
// errors, nil alike. A weight that is not finite is an error.
func (p *Palettizer) Add(w []uint16, importance []float32) error {
	if kernel.MaxBits16(w) >= 0x7c00 {
		for i, b := range w {
			if b&0x7c00 == 0x7c00 {
				return fmt.Errorf("quant: element %d is %v", i, half.ToF32(b))
			}
		}
	}
	p.h.Add(w, importance)
	return nil
}

// Merge adds what another palettizer has counted. Either both know of importance
// or none does.
func (p *Palettizer) Merge(o *Palettizer) { p.h.Merge(&o.h) }

// Table returns 2^bits fp16 entries for the weights added, ascending; unused
// ones are 0 and come last. err is the weighted squared error with that table.
func (p *Palettizer) Table(bits int) (table []uint16, err float64) {
	centroids, _ := p.h.Fit(1 << bits)
	table = make([]uint16, 0, 1<<bits)
	for _, c := range centroids {
		t := half.FromF32(float32(c))
		if math.IsNaN(c) || len(table) > 0 && t == table[len(table)-1] {
			continue
		}
		table = append(table, t)
	}
	err = p.h.Prepare(table)
	return append(table, make([]uint16, 1<<bits-len(table))...), err
}

// Use takes a table, ascending, in place of one that Table finds; unused entries
// must not come before others. err is as for Table.
func (p *Palettizer) Use(table []uint16) (err float64) { return p.h.Prepare(table) }

// Values lists the distinct weights added, ascending.
func (p *Palettizer) Values() []uint16 { return p.h.Values() }

// Stats are those of the weights added, coded with the last Table. Importance
// does not count.
func (p *Palettizer) Stats() Stats {
	s := p.h.Sums()
	return Stats{Elements: s.Elements, Energy: s.Energy, Error: s.Error}
}

// Codes stores the index of the nearest entry of the last Table for weights that
// have been added.
func (p *Palettizer) Codes(dst []byte, w []uint16) { p.h.Assign(dst, w) }

// Pack stores the same indices in bits bits each, as one stream with the first
// in the lowest bits. The number of weights must be a multiple of 8.
func (p *Palettizer) Pack(dst []byte, w []uint16, bits int) { p.h.Pack(dst, w, bits) }
