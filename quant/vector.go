package quant

import (
	"math"
	"math/rand/v2"

	"github.com/smelt-go/smelt/internal/half"
)

// vectors codes runs of consecutive rows as points of a space, whose tables are
// found by Lloyd's iteration. Unlike in one dimension, nothing proves them
// optimal: the start is k-means++ with a fixed seed, and the iteration goes on
// until it gains less than 1e-4 of the error.
func (e *formEncoder) vectors() error {
	dim, group := e.Format.vector(), e.groupRows()
	groups := e.Rows / group
	tables := make([][]float32, groups)
	at := 1
	scale := len(e.data) - 1
	var scales []uint16
	if e.Format.ChannelScale {
		p := &paletteEncoder{formEncoder: e}
		if err := p.findScales(); err != nil {
			return err
		}
		scales = p.scales
		scale = -1
	}
	codes := make([]byte, e.Rows/dim*e.Cols)
	each := func(f func(g int, c *cloud, s *Stats) error) error {
		return e.each(groups, func() func(int, *Stats) error {
			c := &cloud{dim: dim, k: 1 << e.Format.Bits, cols: e.Cols, scales: scales, importance: e.o.Importance}
			return func(g int, s *Stats) error {
				if err := c.load(e.read, g*group, group); err != nil {
					return err
				}
				return f(g, c, s)
			}
		})
	}
	err := each(func(g int, c *cloud, _ *Stats) (err error) {
		if e.Format.Tables == "unique" {
			tables[g], err = c.unique(e.Format.Bits)
			return err
		}
		tables[g] = c.fit(uint64(g))
		return nil
	})
	if err != nil {
		return err
	}
	e.storeTables(tables, at, scale)
	err = each(func(g int, c *cloud, s *Stats) error {
		c.assign(codes[g*group/dim*e.Cols:], tables[g], s)
		return nil
	})
	packAll(e.data[0], codes, e.Format.Bits)
	return err
}

// storeTables rounds tables to what is stored of them.
func (e *formEncoder) storeTables(tables [][]float32, at, scale int) {
	if e.Format.Table != "int8" {
		i := 0
		for _, t := range tables {
			for j, x := range t {
				b := half.FromF32(x)
				putHalf(e.data[at], i, b)
				t[j] = half.ToF32(b)
				i++
			}
		}
		return
	}
	var top float32
	for _, t := range tables {
		for _, x := range t {
			top = max(top, abs(h(x)))
		}
	}
	if scale < 0 {
		scale = at + 1
	}
	l := Linear{Bits: 8, Granularity: PerTensor, Symmetric: true}
	params := l.params(-top, top)
	lo, hi := l.limits()
	putHalf(e.data[scale], 0, half.FromF32(params.scale))
	i := 0
	for _, t := range tables {
		for j, x := range t {
			q := l.at(h(x), params, lo, hi)
			e.data[at][i] = byte(q)
			t[j] = h(params.scale * float32(q))
			i++
		}
	}
}

// cloud is a group of rows as points. It is for one worker.
type cloud struct {
	dim, k, cols int
	scales       []uint16
	importance   []float32

	first  int
	n      int         // points
	raw    []uint16    // rows
	x      [][]float32 // by dimension
	weight []float32   // of points
	code   []byte
	dist   []float32
}

// trained is the number of points that tables are fitted to: of more, an evenly
// spread part is taken.
const trained = 1 << 17

func (c *cloud) load(read func([]uint16, int) error, first, rows int) error {
	c.first = first
	c.raw = growHalf(c.raw, rows*c.cols)
	if err := read(c.raw, first*c.cols); err != nil {
		return err
	}
	c.n = rows / c.dim * c.cols
	if c.x == nil {
		c.x = make([][]float32, c.dim)
	}
	c.weight = growFloat(c.weight, c.n)
	c.dist = growFloat(c.dist, c.n)
	if cap(c.code) < c.n {
		c.code = make([]byte, c.n)
	}
	c.code = c.code[:c.n]
	for d := range c.x {
		c.x[d] = growFloat(c.x[d], c.n)
		for v := range rows / c.dim {
			half.F16ToF32(c.x[d][v*c.cols:(v+1)*c.cols], c.raw[(v*c.dim+d)*c.cols:][:c.cols])
			if c.scales != nil {
				s := half.ToF32(c.scales[first+v*c.dim+d])
				for i := v * c.cols; i < (v+1)*c.cols; i++ {
					c.x[d][i] /= s
				}
			}
		}
	}
	for i := range c.weight {
		c.weight[i] = 1
		if c.importance != nil {
			c.weight[i] = c.importance[i%c.cols]
		}
	}
	return nil
}

// fit finds a table [k, dim].
func (c *cloud) fit(seed uint64) []float32 {
	step := max(1, c.n/trained)
	table := c.start(seed, step)
	last := math.Inf(1)
	for range 100 {
		e := c.nearest(table, step)
		if !(e < last*(1-1e-4)) {
			break
		}
		last = e
		c.centre(table, step)
	}
	return table
}

// start picks points by k-means++: each with a chance proportional to its weight
// times the squared distance from those before.
func (c *cloud) start(seed uint64, step int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	table := make([]float32, c.k*c.dim)
	for i := range c.dist {
		c.dist[i] = math.MaxFloat32
	}
	pick := rng.IntN(c.n) / step * step
	for j := range c.k {
		for d := range c.dim {
			table[j*c.dim+d] = c.x[d][pick]
		}
		var sum float64
		for i := 0; i < c.n; i += step {
			var e float32
			for d := range c.dim {
				v := c.x[d][i] - table[j*c.dim+d]
				e += float32(v * v)
			}
			c.dist[i] = min(c.dist[i], e)
			sum += float64(c.dist[i] * c.weight[i])
		}
		aim := sum * rng.Float64()
		for i := 0; i < c.n; i += step {
			if aim -= float64(c.dist[i] * c.weight[i]); aim < 0 {
				pick = i
				break
			}
		}
	}
	return table
}

// nearest finds the nearest entry of every point and returns the error.
func (c *cloud) nearest(table []float32, step int) (sum float64) {
	for i := 0; i < c.n; i += step {
		best, at := float32(math.MaxFloat32), 0
		for j := range len(table) / c.dim {
			var e float32
			for d := range c.dim {
				v := c.x[d][i] - table[j*c.dim+d]
				e += float32(v * v)
			}
			if e < best {
				best, at = e, j
			}
		}
		c.code[i], c.dist[i] = byte(at), best
		sum += float64(best * c.weight[i])
	}
	return sum
}

// centre moves entries to the middle of their points. One that has none takes
// the point that is farthest from its own.
func (c *cloud) centre(table []float32, step int) {
	sums := make([]float64, len(table))
	mass := make([]float64, c.k)
	for i := 0; i < c.n; i += step {
		j, w := int(c.code[i]), float64(c.weight[i])
		mass[j] += w
		for d := range c.dim {
			sums[j*c.dim+d] += float64(w * float64(c.x[d][i]))
		}
	}
	for j, m := range mass {
		if m == 0 {
			far := 0
			for i := 0; i < c.n; i += step {
				if c.dist[i]*c.weight[i] > c.dist[far]*c.weight[far] {
					far = i
				}
			}
			for d := range c.dim {
				table[j*c.dim+d] = c.x[d][far]
			}
			c.dist[far] = 0
			continue
		}
		for d := range c.dim {
			table[j*c.dim+d] = float32(sums[j*c.dim+d] / m)
		}
	}
}

// unique lists the points that there are.
func (c *cloud) unique(bits int) ([]float32, error) {
	seen := map[[8]float32]bool{}
	var table []float32
	for i := range c.n {
		var key [8]float32
		for d := range c.dim {
			key[d] = c.x[d][i]
		}
		if !seen[key] {
			seen[key] = true
			table = append(table, key[:c.dim]...)
		}
		if len(seen) > c.k {
			return nil, tooManyValues(c.first, c.k, bits)
		}
	}
	return append(table, make([]float32, c.k*c.dim-len(table))...), nil
}

// assign stores the codes of all points and counts what they lose.
func (c *cloud) assign(dst []byte, table []float32, s *Stats) {
	c.nearest(table, 1)
	copy(dst, c.code)
	for i, j := range c.code {
		for d := range c.dim {
			row, col := i/c.cols*c.dim+d, i%c.cols
			x, y := half.ToF32(c.raw[row*c.cols+col]), table[int(j)*c.dim+d]
			if c.scales != nil {
				y = h(half.ToF32(c.scales[c.first+row]) * y)
			}
			e := float64(x) - float64(y)
			s.Energy += float64(float64(x) * float64(x))
			s.Error += float64(e * e)
		}
	}
	s.Elements += int64(len(c.raw))
}
