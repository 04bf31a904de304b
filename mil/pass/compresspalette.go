package pass

import (
	"encoding/binary"
	"runtime"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/quant"
)

var indexTypes = map[int]mil.DType{1: mil.UInt1, 2: mil.UInt2, 3: mil.UInt3, 4: mil.UInt4, 6: mil.UInt6, 8: mil.UInt8}

// wholeGroup is the number of elements up to which a group is read at once.
const wholeGroup = 1 << 18

func (c *compressed) palette(p quant.Palette) error {
	if err := p.Check(c.rows); err != nil {
		return err
	}
	group := p.Rows
	if group == 0 {
		group = c.rows
	}
	groups, size := c.rows/group, group*c.cols
	c.kind = "constexpr_lut_to_dense"
	c.add("indices", indexTypes[p.Bits], true, c.rows, c.cols)
	c.add("lut", mil.Float16, false, groups, 1, 1<<p.Bits, 1)
	c.encode = func(c *compressed) error {
		codes := make([]byte, (c.rows*c.cols*p.Bits+7)/8)
		lut := make([]byte, groups*2<<p.Bits)
		put := func(g int, table []uint16) {
			for i, v := range table {
				binary.LittleEndian.PutUint16(lut[(g<<p.Bits+i)*2:], v)
			}
		}
		c.parts[0].data, c.parts[1].data = codes, lut
		if size%8 != 0 || size > wholeGroup || groups < 2*runtime.GOMAXPROCS(0) {
			for g := range groups {
				if err := c.largeGroup(p, g, group, codes, put); err != nil {
					return err
				}
			}
			return nil
		}
		return c.each(groups, func() func(int, *quant.Stats) error {
			pal := quant.NewPalettizer()
			buf := reader{raw: make([]byte, 2*size)}
			return func(g int, s *quant.Stats) error {
				return c.read(g*group, group, &buf, func(w []uint16, off int) error {
					pal.Reset()
					if err := pal.Add(w, nil); err != nil {
						return err
					}
					table, _ := pal.Table(p.Bits)
					put(g, table)
					pal.Pack(codes[off/8*p.Bits:], w, p.Bits)
					s.Add(pal.Stats())
					return nil
				})
			}
		})
	}
	return nil
}

// largeGroup codes one group on all cores.
func (c *compressed) largeGroup(p quant.Palette, g, group int, codes []byte, put func(int, []uint16)) error {
	// Pieces are whole rows whose codes end with a byte, where there are such.
	rows := max(1, readElements/c.cols)
	for rows < group && rows*c.cols%8 != 0 {
		rows++
	}
	rows = min(rows, group)
	pieces := (group + rows - 1) / rows
	span := func(i int) (first, n int) { return g*group + i*rows, min(rows, group-i*rows) }
	workers := make(chan *quant.Palettizer, pieces)
	err := c.each(pieces, func() func(int, *quant.Stats) error {
		pal := quant.NewPalettizer()
		workers <- pal
		var buf reader
		return func(i int, _ *quant.Stats) error {
			first, n := span(i)
			return c.read(first, n, &buf, func(w []uint16, _ int) error { return pal.Add(w, nil) })
		}
	})
	if err != nil {
		return err
	}
	pal := <-workers
	for len(workers) > 0 {
		pal.Merge(<-workers)
	}
	table, _ := pal.Table(p.Bits)
	put(g, table)
	c.report.Stats.Add(pal.Stats())
	if g*group*c.cols%8 != 0 || group*c.cols%8 != 0 {
		return c.oddGroup(pal, p, g, group, codes)
	}
	return c.each(pieces, func() func(int, *quant.Stats) error {
		var buf reader
		return func(i int, _ *quant.Stats) error {
			first, n := span(i)
			return c.read(first, n, &buf, func(w []uint16, off int) error {
				pal.Pack(codes[off/8*p.Bits:], w, p.Bits)
				return nil
			})
		}
	})
}

// oddGroup stores codes of a group that shares bytes with others.
func (c *compressed) oddGroup(pal *quant.Palettizer, p quant.Palette, g, group int, codes []byte) error {
	var buf reader
	return c.read(g*group, group, &buf, func(w []uint16, off int) error {
		one := make([]byte, len(w))
		pal.Codes(one, w)
		for i, q := range one {
			bit := (off + i) * p.Bits
			v := uint(q) << (bit % 8)
			codes[bit/8] |= byte(v)
			if v > 0xff {
				codes[bit/8+1] |= byte(v >> 8)
			}
		}
		return nil
	})
}
