package quant

import (
	"math"

	"github.com/smelt-go/smelt/internal/half"
)

// turboCells finds the nearest of the levels of a width. Magnitudes fall into
// cells of 1/64, less than any two levels are apart from what is halfway to their
// neighbours, so that a cell has at most one boundary in it.
type turboCells struct {
	levels []float32
	cells  [512]turboCell
	top    float32 // where the last cell that is used begins
}

type turboCell struct {
	edge   float32
	lo, hi uint32 // bits of the levels below and above the edge
	index  uint32 // of lo
}

const cellsPerUnit = 64

func newTurboCells(bits int) *turboCells {
	l := turboLevels[bits]
	n := int(l[len(l)-1]*cellsPerUnit) + 2
	c := &turboCells{levels: l, top: float32(n-1) / cellsPerUnit}
	for k := range c.cells[:n] {
		i := nearestLevel(float32(k)/cellsPerUnit, l)
		b := math.Float32bits(l[i])
		cell := turboCell{float32(math.Inf(1)), b, b, uint32(i)}
		if i+1 < len(l) {
			cell.edge, cell.hi = (l[i]+l[i+1])/2, math.Float32bits(l[i+1])
		}
		c.cells[k] = cell
	}
	return c
}

// index is that of the level nearest to a magnitude; of two equally near, of the
// lower.
func (c *turboCells) index(a float32) uint32 {
	if a > c.top {
		a = c.top
	}
	cell := &c.cells[uint32(int32(a*cellsPerUnit))%512]
	i := cell.index
	if a > cell.edge {
		i++
	}
	return i
}

// signed is the level nearest to x, with its sign.
func (c *turboCells) signed(x float32) float32 {
	b := math.Float32bits(x)
	a := math.Float32frombits(b &^ (1 << 31))
	if a > c.top {
		a = c.top
	}
	cell := &c.cells[uint32(int32(a*cellsPerUnit))%512]
	l := cell.lo
	if a > cell.edge {
		l = cell.hi
	}
	return math.Float32frombits(l | b&(1<<31))
}

// code is that of a signed level or of anything near it.
func (c *turboCells) code(x float32) byte {
	b := math.Float32bits(x)
	i := c.index(math.Float32frombits(b &^ (1 << 31)))
	n := uint32(len(c.levels))
	if b>>31 != 0 {
		return byte(n - 1 - i)
	}
	return byte(n + i)
}

// value is the signed level of a code.
func (c *turboCells) value(code byte) float32 {
	n := len(c.levels)
	if i := int(code) - n; i >= 0 {
		return c.levels[i]
	}
	return -c.levels[n-1-int(code)]
}

// fit finds scale and codes of a group, without feedback.
func (c *turboCells) fit(codes []byte, y []float32, m Method) uint16 {
	var energy float64
	for _, v := range y {
		energy += float64(float64(v) * float64(v))
	}
	best, least := uint16(0), energy
	if energy > 0 {
		rms := math.Sqrt(energy / float64(len(y)))
		c.descend(y, half.FromF32(float32(rms)), energy, &best, &least)
		if m == Refit {
			for _, f := range []float64{0.75, 0.85, 0.93, 1.07, 1.15, 1.25} {
				c.descend(y, half.FromF32(float32(f*rms)), energy, &best, &least)
			}
		}
	}
	scale := half.ToF32(best)
	inv := float32(0)
	if scale > 0 {
		inv = 1 / scale
	}
	for i, v := range y {
		codes[i] = c.code(float32(v * inv))
	}
	return best
}

// descend alternates least squares and coding from a scale on.
func (c *turboCells) descend(y []float32, scale uint16, energy float64, best *uint16, least *float64) {
	for range 8 {
		s := float64(half.ToF32(scale))
		if math.IsInf(s, 0) && *best == 0 {
			*best = scale // for the caller to refuse
		}
		if s == 0 || math.IsInf(s, 0) {
			return
		}
		yc, cc := c.sums(y, float32(s))
		// An exact tie goes to the scale found first.
		if e := energy - float64(2*s*yc) + float64(float64(s*s)*cc); e < *least {
			*best, *least = scale, e
		}
		next := half.FromF32(float32(yc / cc))
		if next == scale {
			return
		}
		scale = next
	}
}

// sums are Σ y·level and Σ level² of the nearest levels.
func (c *turboCells) sums(y []float32, scale float32) (yc, cc float64) {
	inv := 1 / scale
	for _, v := range y {
		a := abs(v)
		l := float64(c.levels[c.index(abs(float32(v*inv)))])
		yc += float64(float64(a) * l)
		cc += float64(l * l)
	}
	return yc, cc
}

// column codes a column of some rows: x are what it would best be, t what errors
// are measured from. It stores levels and errors, and adds weight times the square
// of x less what is decoded to loss.
func (c *turboCells) column(level, errs, loss, x, t []float32, p *turboScales, weight float32) {
	n := len(x)
	level, errs, loss, t = level[:n], errs[:n], loss[:n], t[:n]
	scale, inverse := p.scale[:n], p.inverse[:n]
	for r, v := range x {
		l := c.signed(float32(v * inverse[r]))
		w := float32(l * scale[r])
		level[r] = l
		errs[r] = t[r] - w
		e := v - w
		loss[r] += float32(weight * float32(e*e))
	}
}

// nearestLevel finds the level nearest to x ≥ 0; of two equally near, the lower.
func nearestLevel(x float32, levels []float32) int {
	lo, hi := 0, len(levels)-1
	for lo < hi {
		mid := (lo + hi) / 2
		if x > (levels[mid]+levels[mid+1])/2 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
