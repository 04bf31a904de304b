package quant

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/smelt-go/smelt/internal/half"
)

// mask marks the elements of a matrix that are stored.
type mask struct {
	bits   []byte
	cols   int
	before []int // marked elements before every row, and all
}

func (m *mask) has(i int) bool { return m.bits[i>>3]>>(i&7)&1 == 1 }

// clear zeroes what is left out of elements from the given one on, counts it in
// s and returns how many elements that were.
func (m *mask) clear(w []uint16, first int, s *Stats) (lost int64) {
	if m == nil {
		return 0
	}
	for i, b := range w {
		if !m.has(first + i) {
			x := float64(half.ToF32(b))
			s.Energy += float64(x * x)
			s.Error += float64(x * x)
			lost++
			w[i] = 0
		}
	}
	s.Elements += lost
	return lost
}

// gather lists the codes of what is stored; it works in place.
func (m *mask) gather(codes []byte) []byte {
	if m == nil {
		return codes
	}
	n := 0
	for i, c := range codes {
		if m.has(i) {
			codes[n] = c
			n++
		}
	}
	return codes[:n]
}

// count fills before.
func (m *mask) count(rows int) {
	m.before = make([]int, rows+1)
	for r := range rows {
		n := 0
		i, end := r*m.cols, (r+1)*m.cols
		for ; i < end && i%8 != 0; i++ {
			n += int(m.bits[i>>3] >> (i & 7) & 1)
		}
		for ; i+8 <= end; i += 8 {
			n += bits.OnesCount8(m.bits[i>>3])
		}
		for ; i < end; i++ {
			n += int(m.bits[i>>3] >> (i & 7) & 1)
		}
		m.before[r+1] = m.before[r] + n
	}
}

// leaveOut finds the mask of a sparse format. Of two equal magnitudes the one
// that comes first is left out first.
func (e *formEncoder) leaveOut() error {
	if !e.Format.sparse() {
		return nil
	}
	e.mask = &mask{bits: make([]byte, (e.Rows*e.Cols+7)/8), cols: e.Cols}
	var err error
	if e.Format.Pattern != "" {
		err = e.patterned()
	} else {
		err = e.smallest()
	}
	if err != nil {
		return err
	}
	e.mask.count(e.Rows)
	if n := e.mask.before[e.Rows]; n != e.stored {
		return fmt.Errorf("quant: %d weights are kept, not %d (the tensor changed while it was read)", n, e.stored)
	}
	return nil
}

// rows calls f for all rows in order, some at a time.
func (e *formEncoder) rows(f func(w []uint16, first int) error) error {
	rows, count := e.pieces(e.Rows)
	w := make([]uint16, rows*e.Cols)
	for i := range count {
		n := min(rows, e.Rows-i*rows)
		if err := e.read(w[:n*e.Cols], i*rows*e.Cols); err != nil {
			return err
		}
		if err := f(w[:n*e.Cols], i*rows*e.Cols); err != nil {
			return err
		}
	}
	return nil
}

// smallest marks all but the weights of least magnitude.
func (e *formEncoder) smallest() error {
	counts := make([]int, 1<<15)
	err := e.rows(func(w []uint16, _ int) error {
		for _, b := range w {
			counts[b&0x7fff]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	left := e.Rows*e.Cols - e.stored
	edge := uint16(0)
	for ; left > 0 && counts[edge] <= left; edge++ {
		left -= counts[edge]
	}
	return e.rows(func(w []uint16, first int) error {
		for i, b := range w {
			m := b & 0x7fff
			if m == edge && left > 0 {
				left--
				continue
			}
			if m >= edge {
				e.mask.bits[(first+i)>>3] |= 1 << ((first + i) & 7)
			}
		}
		return nil
	})
}

// patterned marks all but the n smallest of every m neighbours.
func (e *formEncoder) patterned() error {
	n, m, err := e.Format.pattern()
	if err != nil {
		return err
	}
	order := make([]int, m)
	return e.rows(func(w []uint16, first int) error {
		for at := 0; at < len(w); at += m {
			run := w[at : at+m]
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int { return int(run[a]&0x7fff) - int(run[b]&0x7fff) })
			for _, i := range order[n:] {
				j := first + at + i
				e.mask.bits[j>>3] |= 1 << (j & 7)
			}
		}
		return nil
	})
}
