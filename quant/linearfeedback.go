package quant

import (
	"math"

	"github.com/smelt-go/smelt/internal/half"
)

// linearFeedback codes integers with error feedback.
//
// The scale of a block is found when its turn comes, for its targets: that with
// the least error weighted by pivots among clipped ranges and their least squares,
// and of it and its neighbours the one with the least cost when the block is coded
// with feedback. Scales of whole rows are found before, for the weights.
//
// A row that would cost more than with method rtn gets that.
func (e *formEncoder) linearFeedback() error {
	l := e.Format.Linear()
	scale, offset := e.data[1], []byte(nil)
	blocks := len(scale) / 2 / e.Rows
	if l.HasOffset() {
		offset = make([]byte, e.Rows*blocks)
	}
	codes := make([]byte, e.Rows*e.Cols)
	unit := min(roundRows, e.Rows)
	err := e.each((e.Rows+unit-1)/unit, func() func(int, *Stats) error {
		return func(u int, s *Stats) error {
			first := u * unit
			rows := min(unit, e.Rows-first)
			b := &linearBlock{l: l, f: e.o.Feedback, rows: rows, cols: e.Cols, blocks: blocks,
				params: make([]linearParams, rows*blocks), codes: codes[first*e.Cols:][:rows*e.Cols]}
			w := make([]uint16, rows*e.Cols)
			if err := e.read(w, first*e.Cols); err != nil {
				return err
			}
			if err := b.code(w, s); err != nil {
				return err
			}
			for i, p := range b.params {
				putHalf(scale, first*blocks+i, half.FromF32(p.scale))
				if offset != nil {
					offset[first*blocks+i] = byte(p.offset)
				}
			}
			return nil
		}
	})
	packAll(e.data[0], codes, l.Bits)
	if offset != nil {
		packAll(e.data[2], offset, l.Bits)
	}
	return err
}

// linearBlock is some rows on their way.
type linearBlock struct {
	l          Linear
	f          *Feedback
	rows, cols int
	blocks     int // of a row
	params     []linearParams
	codes      []byte
}

func (b *linearBlock) code(w []uint16, s *Stats) error {
	x := make([]float32, len(w))
	half.F16ToF32(x, w)
	decoded := append([]float32(nil), x...)
	if b.blocks == 1 && b.l.Granularity == PerChannel {
		for r := range b.rows {
			b.params[r] = b.l.weighted(x[r*b.cols:][:b.cols], nil)
		}
		b.f.Round(decoded, func(col int, t []float32) {
			for r, v := range t {
				q := b.l.nearest(v, b.params[r])
				b.codes[r*b.cols+col] = byte(q)
				t[r] = b.params[r].decode(q)
			}
		})
	} else {
		b.f.RoundGroups(decoded, b.group)
	}
	plain, err := b.l.Quantize(w, b.rows, b.cols, RTN)
	if err != nil {
		return err
	}
	rtn := make([]float32, len(x))
	run := b.cols / b.blocks
	for i, q := range plain.Codes {
		rtn[i] = b.plain(plain, i/run).decode(int(b.l.widen(q)))
	}
	energy, mine, theirs := b.f.losses(x, nil), b.f.losses(x, decoded), b.f.losses(x, rtn)
	for r := range b.rows {
		row := decoded[r*b.cols:][:b.cols]
		if !(mine[r] <= theirs[r]) {
			copy(row, rtn[r*b.cols:])
			for i := range row {
				b.codes[r*b.cols+i] = byte(plain.Codes[r*b.cols+i])
			}
			for i := r * b.blocks; i < (r+1)*b.blocks; i++ {
				b.params[i] = b.plain(plain, i)
			}
			mine[r] = theirs[r]
			s.Fallbacks++
		}
		s.OutputEnergy += energy[r]
		s.OutputError += mine[r]
		s.OutputRTN += theirs[r]
		for i, y := range row {
			v := x[r*b.cols+i]
			s.Energy += float64(float64(v) * float64(v))
			s.Error += float64(float64(v-y) * float64(v-y))
		}
	}
	s.Elements += int64(len(x))
	return nil
}

// plain are the parameters of method rtn.
func (b *linearBlock) plain(q Integers, i int) linearParams {
	p := linearParams{scale: half.ToF32(q.Scale[i])}
	if q.Offset != nil {
		p.offset = int(b.l.widen(q.Offset[i]))
	}
	return p
}

// widen undoes the wrapping of unsigned codes.
func (l Linear) widen(q int8) int {
	if l.Unsigned {
		return int(uint8(q))
	}
	return int(q)
}

// decode is what a code stands for, in fp16.
func (p linearParams) decode(q int) float32 { return h(p.scale * float32(q-p.offset)) }

// nearest is the code nearest to x.
func (l Linear) nearest(x float32, p linearParams) int {
	lo, hi := l.limits()
	if p.scale == 0 {
		return p.offset
	}
	q := math.RoundToEven(float64(x/p.scale)) + float64(p.offset)
	return int(min(max(q, float64(lo)), float64(hi)))
}

// weighted finds parameters of least error, weighted by d; nil weights all alike.
func (l Linear) weighted(x, d []float32) linearParams {
	a, b := minMax(x)
	lo, hi := l.limits()
	best, least := linearParams{}, math.Inf(1)
	measure := func(p linearParams) (next float32) {
		var e, qq, qx float64
		for i, v := range x {
			q := min(max(math.RoundToEven(float64(v/p.scale))+float64(p.offset), float64(lo)), float64(hi)) - float64(p.offset)
			w := 1.0
			if d != nil {
				w = float64(d[i])
			}
			err := float64(v) - float64(q*float64(p.scale))
			e += float64(w * err * err)
			qq += float64(w * q * q)
			qx += float64(w * q * float64(v))
		}
		if e < least {
			best, least = p, e
		}
		return h(float32(qx / qq))
	}
	const steps = 9
	width := float32(0.55) / steps
	if l.Bits == 8 {
		width = 0.1 / steps
	}
	for i := range steps {
		keep := 1 - float32(width*float32(i))
		p := l.params(h(a*keep), h(b*keep))
		if !(p.scale > 0) || math.IsInf(float64(p.scale), 0) {
			continue
		}
		measure(p)
	}
	for range 3 {
		p := best
		if p.scale == 0 {
			break
		}
		p.scale = measure(p)
		if p.scale == best.scale || !(p.scale > 0) || math.IsInf(float64(p.scale), 0) {
			break
		}
		measure(p)
	}
	return best
}

// group codes the columns of a block of every row.
func (b *linearBlock) group(c *Columns) {
	n := len(c.Index)
	at := int(c.Index[0]) * b.blocks / b.cols
	t, d := make([]float32, n), make([]float32, n)
	q, best := make([]int, n), make([]int, n)
	copy(d, c.Pivots)
	for r := range b.rows {
		for j := range t {
			t[j] = c.Targets[j*c.Rows+r]
		}
		p := b.l.weighted(t, d)
		least := math.Inf(1)
		taken := p
		for _, k := range []float32{1, 0.94, 1.06} {
			try := p
			try.scale = h(p.scale * k)
			if try.scale == 0 && k != 1 {
				continue
			}
			if cost := b.feed(c, t, try, q); cost < least {
				least, taken = cost, try
				copy(best, q)
			}
		}
		b.params[r*b.blocks+at] = taken
		for j, col := range c.Index {
			b.codes[r*b.cols+int(col)] = byte(best[j])
			c.Decoded[j*c.Rows+r] = taken.decode(best[j])
		}
	}
}

// feed codes targets with feedback and returns what it costs.
func (b *linearBlock) feed(c *Columns, t []float32, p linearParams, q []int) (cost float64) {
	var errs [maxGroup]float32
	for j, v := range t {
		u := c.Feedback[j*c.Stride:][:j]
		var s float32
		for i, f := range u {
			s += float32(f * errs[i])
		}
		v += s
		q[j] = b.l.nearest(v, p)
		y := p.decode(q[j])
		errs[j] = t[j] - y
		cost += float64(float64(c.Pivots[j]) * float64(v-y) * float64(v-y))
	}
	return cost
}
