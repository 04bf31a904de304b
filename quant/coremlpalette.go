package quant

import (
	"fmt"
	"slices"
	"sync"

	"github.com/smelt-go/smelt/internal/half"
)

// wholeGroup is the number of elements up to which a worker takes a group at
// once.
const wholeGroup = 1 << 18

// paletteEncoder codes scalars.
type paletteEncoder struct {
	*formEncoder
	group  int      // rows that share a table
	scales []uint16 // of rows; nil: none
	tables [][]uint16
	codes  []byte // one a byte, of what is stored; nil: packed right away
	at     struct{ indices, table int }

	mu    sync.Mutex
	taken []*Palettizer
}

// palettizers keep their memory from one matrix to the next.
var palettizers = sync.Pool{New: func() any { return NewPalettizer() }}

// take returns a palettizer until giveBack.
func (p *paletteEncoder) take() *Palettizer {
	pal := palettizers.Get().(*Palettizer)
	pal.Reset()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = append(p.taken, pal)
	return pal
}

func (p *paletteEncoder) giveBack() {
	for _, pal := range p.taken {
		palettizers.Put(pal)
	}
	p.taken = nil
}

func (e *formEncoder) palettes() error {
	if err := e.leaveOut(); err != nil {
		return err
	}
	p := &paletteEncoder{formEncoder: e, group: e.groupRows()}
	defer p.giveBack()
	groups, size := e.Rows/p.group, p.group*e.Cols
	p.tables = make([][]uint16, groups)
	if e.mask != nil {
		e.data[0], p.at.indices = e.mask.bits, 1
	}
	p.at.table = p.at.indices + 1
	small := size <= wholeGroup && groups >= 2*e.o.Workers
	per, _ := e.pieces(p.group)
	if e.mask != nil || size%8 != 0 || !small && per*e.Cols%8 != 0 {
		p.codes = make([]byte, e.stored)
	}
	if e.Format.ChannelScale {
		if err := p.findScales(); err != nil {
			return err
		}
	}
	var err error
	if small {
		err = p.small(groups)
	} else {
		err = p.large(groups)
	}
	if p.codes != nil {
		packAll(e.data[p.at.indices], p.codes, e.Format.Bits)
	}
	return err
}

// small codes groups side by side.
func (p *paletteEncoder) small(groups int) error {
	whole := p.Format.Table != "int8"
	pass := func(tables, codes bool) error {
		return p.each(groups, func() func(int, *Stats) error {
			pal := p.take()
			v := values{p: p}
			return func(g int, s *Stats) error {
				pal.Reset()
				if err := v.load(g*p.group, p.group); err != nil {
					return err
				}
				pal.h.Add(v.u, v.weights)
				if tables {
					if err := p.table(pal, g); err != nil {
						return err
					}
				}
				if !codes {
					return nil
				}
				if !whole {
					pal.Use(p.tables[g])
				}
				p.store(pal, &v, g, s)
				return nil
			}
		})
	}
	if whole {
		return pass(true, true)
	}
	if err := pass(true, false); err != nil {
		return err
	}
	p.shrinkTables()
	return pass(false, true)
}

// large codes groups one after the other, each on all cores.
func (p *paletteEncoder) large(groups int) error {
	code := func(pal *Palettizer, g int) error {
		rows, count := p.pieces(p.group)
		return p.each(count, func() func(int, *Stats) error {
			v := values{p: p}
			return func(i int, s *Stats) error {
				if err := v.load(g*p.group+i*rows, min(rows, p.group-i*rows)); err != nil {
					return err
				}
				p.store(pal, &v, g, s)
				return nil
			}
		})
	}
	whole := p.Format.Table != "int8"
	for g := range groups {
		pal, err := p.count(g)
		if err == nil {
			err = p.table(pal, g)
		}
		if err == nil && whole {
			err = code(pal, g)
		}
		if err != nil {
			return err
		}
	}
	if whole {
		return nil
	}
	p.shrinkTables()
	for g := range groups {
		pal, err := p.count(g)
		if err != nil {
			return err
		}
		pal.Use(p.tables[g])
		if err := code(pal, g); err != nil {
			return err
		}
	}
	return nil
}

// count counts a group's values. Sums of importance depend on the order of
// addition, so that one worker adds them all up.
func (p *paletteEncoder) count(g int) (*Palettizer, error) {
	rows, count := p.pieces(p.group)
	workers := make(chan *Palettizer, count)
	e := *p.formEncoder
	if e.o.Importance != nil || p.scales != nil {
		e.o.Workers = 1
	}
	err := e.each(count, func() func(int, *Stats) error {
		pal := p.take()
		workers <- pal
		v := values{p: p}
		return func(i int, _ *Stats) error {
			if err := v.load(g*p.group+i*rows, min(rows, p.group-i*rows)); err != nil {
				return err
			}
			pal.h.Add(v.u, v.weights)
			return nil
		}
	})
	if err != nil {
		return nil, err
	}
	pal := <-workers
	for len(workers) > 0 {
		pal.Merge(<-workers)
	}
	return pal, nil
}

// values are weights on their way to a palettizer.
type values struct {
	p          *paletteEncoder
	first, n   int      // rows
	w          []uint16 // elements of the matrix
	u          []uint16 // what is coded of them
	weights    []float32
	spare      []uint16
	importance []float32
	sparse     []float32
}

// load reads rows.
func (v *values) load(first, n int) error {
	p := v.p
	v.first, v.n = first, n
	v.w = growHalf(v.w, n*p.Cols)
	if err := p.read(v.w, first*p.Cols); err != nil {
		return err
	}
	v.u, v.weights = v.w, nil
	if p.o.Importance != nil || p.scales != nil {
		v.importance = growFloat(v.importance, len(v.w))
		for i := range v.importance {
			v.importance[i] = 1
			if p.o.Importance != nil {
				v.importance[i] = p.o.Importance[i%p.Cols]
			}
		}
		v.weights = v.importance
	}
	if p.scales != nil {
		v.spare = growHalf(v.spare, len(v.w))
		for r := range n {
			s := half.ToF32(p.scales[first+r])
			for i := r * p.Cols; i < (r+1)*p.Cols; i++ {
				v.spare[i] = half.FromF32(half.ToF32(v.w[i]) / s)
				v.importance[i] *= s * s
			}
		}
		v.u = v.spare
	}
	if p.mask != nil {
		v.spare = growHalf(v.spare, len(v.w))[:0]
		v.sparse = v.sparse[:0]
		for i, b := range v.w {
			if p.mask.has(first*p.Cols + i) {
				v.spare = append(v.spare, b)
				if v.weights != nil {
					v.sparse = append(v.sparse, v.weights[i])
				}
			}
		}
		v.u = v.spare
		if v.weights != nil {
			v.weights = v.sparse
		}
	}
	return nil
}

// table finds the table of a group.
func (p *paletteEncoder) table(pal *Palettizer, g int) error {
	bits := p.Format.Bits
	var table []uint16
	switch p.Format.Tables {
	case "uniform":
		table = uniformTable(pal.Values(), bits)
		pal.Use(table)
	case "unique":
		v := pal.Values()
		if len(v) > 1 { // −0 is 0
			v = slices.CompactFunc(slices.Clone(v), func(a, b uint16) bool { return half.ToF32(a) == half.ToF32(b) })
		}
		if len(v) > 1<<bits {
			return tooManyValues(g*p.group, 1<<bits, bits)
		}
		table = make([]uint16, 1<<bits)
		copy(table, v)
		pal.Use(v)
	default:
		table, _ = pal.Table(bits)
	}
	p.tables[g] = table
	if p.Format.Table != "int8" {
		for i, b := range table {
			putHalf(p.data[p.at.table], g<<bits+i, b)
		}
	}
	return nil
}

func tooManyValues(row, size, bits int) error {
	return fmt.Errorf("quant: the group of row %d has more than %d values, which %d bits cannot tell apart (choose more bits, smaller groups or tables kmeans)", row, size, bits)
}

// uniformTable has equal steps from the smallest to the largest value.
func uniformTable(v []uint16, bits int) []uint16 {
	table := make([]uint16, 1<<bits)
	if len(v) == 0 {
		return table
	}
	lo, hi := half.ToF32(v[0]), half.ToF32(v[len(v)-1])
	step := h((hi - lo) / float32(len(table)-1))
	for i := range table {
		table[i] = half.FromF32(float32(float32(i)*step) + lo)
	}
	return table
}

// shrinkTables rounds all tables to int8 with one scale: the largest magnitude
// is 127.
func (p *paletteEncoder) shrinkTables() {
	var top float32
	for _, t := range p.tables {
		for _, b := range t {
			top = max(top, abs(half.ToF32(b)))
		}
	}
	l := Linear{Bits: 8, Granularity: PerTensor, Symmetric: true}
	params := l.params(-top, top)
	lo, hi := l.limits()
	putHalf(p.data[p.at.table+1], 0, half.FromF32(params.scale))
	for g, t := range p.tables {
		// Entries that are equal now, and the unused ones behind them, stay in
		// ascending order up to the last that is used.
		used := len(t)
		for used > 1 && half.ToF32(t[used-1]) < half.ToF32(t[used-2]) {
			used--
		}
		for i, b := range t {
			q := l.at(half.ToF32(b), params, lo, hi)
			p.data[p.at.table][g*len(t)+i] = byte(q)
			t[i] = half.FromF32(params.scale * float32(q))
		}
		p.tables[g] = t[:used]
	}
}

// findScales takes the largest magnitude of every row; 1 for rows of zeros.
func (p *paletteEncoder) findScales() error {
	p.scales = make([]uint16, p.Rows)
	rows, count := p.pieces(p.Rows)
	err := p.each(count, func() func(int, *Stats) error {
		w := make([]uint16, rows*p.Cols)
		return func(i int, _ *Stats) error {
			first, n := i*rows, min(rows, p.Rows-i*rows)
			if err := p.read(w[:n*p.Cols], first*p.Cols); err != nil {
				return err
			}
			for r := range n {
				top := uint16(0)
				for _, b := range w[r*p.Cols : (r+1)*p.Cols] {
					top = max(top, b&0x7fff)
				}
				if top == 0 {
					top = 0x3c00
				}
				p.scales[first+r] = top
			}
			return nil
		}
	})
	last := len(p.data) - 1
	for r, b := range p.scales {
		putHalf(p.data[last], r, b)
	}
	return err
}

// store writes the codes of loaded rows and counts what they lose.
func (p *paletteEncoder) store(pal *Palettizer, v *values, g int, s *Stats) {
	bits := p.Format.Bits
	switch {
	case p.codes == nil:
		pal.Pack(p.data[p.at.indices][v.first*p.Cols/8*bits:], v.u, bits)
	case p.mask != nil:
		pal.Codes(p.codes[p.mask.before[v.first]:], v.u)
	default:
		pal.Codes(p.codes[v.first*p.Cols:], v.u)
	}
	if p.scales == nil && p.mask == nil && v.n == p.group {
		s.Add(pal.Stats())
		return
	}
	table := p.tables[g]
	var entry [256]float32
	for i, b := range table {
		entry[i] = half.ToF32(b)
	}
	k := 0
	for i, b := range v.w {
		x, y := half.ToF32(b), float32(0)
		if p.mask == nil || p.mask.has(v.first*p.Cols+i) {
			y = entry[pal.h.Code(v.u[k])]
			k++
			if p.scales != nil {
				y = h(half.ToF32(p.scales[v.first+i/p.Cols]) * y)
			}
		}
		d := float64(x) - float64(y)
		s.Energy += float64(float64(x) * float64(x))
		s.Error += float64(d * d)
	}
	s.Elements += int64(len(v.w))
}
