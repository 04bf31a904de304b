package quant

import (
	"errors"
	"math"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/bitpack"
)

// encodeMeasured codes rows and adds up Error, and what error feedback knows more.
func (f Float) encodeMeasured(dst [][]byte, r Rows, m Method, st *Stats) error {
	switch {
	case m.Calibrated():
		return f.encodeFeedback(dst, r, st)
	case m == Refit:
		f.refit(dst, r)
	default:
		f.rtn(dst, r)
	}
	back := make([]float32, len(r.W))
	f.Decode(back, dst, r.Cols, r.DType)
	for i, w := range r.W {
		e := float64(w - back[i])
		st.Error += float64(e * e)
	}
	return nil
}

// floatValues are what codes stand for, over the scale.
type floatValues struct {
	f     Float
	dt    checkpoint.DType
	value [256]float32
}

func newFloatValues(f Float, dt checkpoint.DType) *floatValues {
	v := &floatValues{f: f, dt: dt}
	for i := range v.value {
		if f.bits == 4 {
			v.value[i] = e2m1[i%16]
		} else {
			v.value[i] = fromE4M3(byte(i))
		}
	}
	return v
}

// code is that of the nearest value.
func (v *floatValues) code(x float32) byte {
	if v.f.bits == 8 {
		return toE4M3(x)
	}
	a, c := abs(x), byte(0)
	for _, edge := range [...]float32{.25, .75, 1.25, 1.75, 2.5, 3.5, 5} {
		if a > edge {
			c++
		}
	}
	if x < 0 {
		c |= 8
	}
	return c
}

// scale is what a stored scale stands for; 0 if it is of no use.
func (v *floatValues) scale(b int) float32 {
	if b < 0 || b > 254 || v.f.e4m3 && b > 0x7e {
		return 0
	}
	var s float32
	if v.f.e4m3 {
		s = fromE4M3(byte(b))
	} else {
		s = round(float32(math.Ldexp(1, b-127)), v.dt)
	}
	if top := round(float32(s*v.f.top), v.dt); top-top != 0 || 1/s-1/s != 0 {
		return 0
	}
	return s
}

// candidates are stored scales that may suit a group, that of the format's rule
// first.
func (v *floatValues) candidates(peak float32) (out [10]int, n int) {
	s := peak / v.f.top
	at, lo, hi := int(toE8M0(s)), -1, 1
	if v.f.e4m3 {
		at, lo, hi = int(toE4M3(s)), -6, 2
	}
	out[0], n = at, 1
	for i := lo; i <= hi; i++ {
		if i != 0 && v.scale(at+i) > 0 {
			out[n] = at + i
			n++
		}
	}
	return out, n
}

// refit finds the scale of least squared error, weighted with importance, of each
// group; those of the format's rule stay where none is better.
func (f Float) refit(dst [][]byte, r Rows) {
	f.rtn(dst, r)
	v := newFloatValues(f, r.DType)
	back := make([]float32, len(r.W))
	f.Decode(back, dst, r.Cols, r.DType)
	n := f.group * f.bits / 8
	var codes, best [maxGroup]byte
	for g := 0; g*f.group < len(r.W); g++ {
		at := g * f.group
		w := r.W[at:][:f.group]
		weight := func(i int) float64 {
			if r.Importance == nil {
				return 1
			}
			return float64(r.Importance[(at+i)%r.Cols])
		}
		var peak float32
		var least float64
		for i, x := range w {
			peak = max(peak, abs(x))
			e := float64(x - back[at+i])
			least += float64(weight(i) * float64(e*e))
		}
		found := -1
		list, count := v.candidates(peak)
		for _, b := range list[:count] {
			s := v.scale(b)
			if s == 0 {
				continue
			}
			var sum float64
			for i, x := range w {
				codes[i] = v.code(x / s)
				e := float64(x - float32(s*v.value[codes[i]]))
				sum += float64(weight(i) * float64(e*e))
			}
			if sum < least {
				least, found, best = sum, b, codes
			}
		}
		if found >= 0 {
			dst[1][g] = byte(found)
			bitpack.Pack(dst[0][g*n:], best[:f.group], f.bits)
		}
	}
}

// floatBlock is some rows on their way.
type floatBlock struct {
	*floatValues
	fb     *Feedback
	rows   int
	groups int    // of a row
	scales []byte // stored
	codes  []byte
}

// encodeFeedback codes rows with error feedback. Of the stored scales that may suit a
// group, the one is taken with which coding the group with feedback costs least;
// then groups are coded again, each with all others as they are (Feedback.Refine).
// A row that would cost more than with method rtn gets that.
func (f Float) encodeFeedback(dst [][]byte, r Rows, st *Stats) error {
	fb := r.Feedback
	if fb == nil {
		return errors.New("quant: error feedback needs a calibration")
	}
	if fb.cols != r.Cols || fb.group != f.group || fb.turned {
		return errors.New("quant: the calibration is for another matrix")
	}
	rows, groups := len(r.W)/r.Cols, r.Cols/f.group
	b := &floatBlock{newFloatValues(f, r.DType), fb, rows, groups, make([]byte, rows*groups), make([]byte, len(r.W))}
	decoded := append([]float32(nil), r.W...)
	fb.RoundGroups(decoded, func(c *Columns) { b.code(c, false) })
	for range refinements {
		fb.Refine(r.W, decoded, func(c *Columns) { b.code(c, true) })
	}
	// What method rtn makes of them, in place of what is no better.
	f.rtn(dst, r)
	plain := make([]float32, len(r.W))
	f.Decode(plain, dst, r.Cols, r.DType)
	own, rtn := fb.losses(r.W, decoded), fb.losses(r.W, plain)
	for _, e := range fb.losses(r.W, nil) {
		st.OutputEnergy += e
	}
	for i := range rows {
		at, end := i*r.Cols, (i+1)*r.Cols
		st.OutputRTN += rtn[i]
		if own[i] <= rtn[i] {
			copy(dst[1][i*groups:], b.scales[i*groups:(i+1)*groups])
			bitpack.Pack(dst[0][at*f.bits/8:], b.codes[at:end], f.bits)
		} else {
			copy(decoded[at:end], plain[at:end])
			own[i] = rtn[i]
			st.Fallbacks++
		}
		st.OutputError += own[i]
	}
	for i, w := range r.W {
		e := float64(w - decoded[i])
		st.Error += float64(e * e)
	}
	return nil
}

// code codes the columns of a group of every row; again says that they are coded
// already, and only what is better is taken.
func (b *floatBlock) code(c *Columns, again bool) {
	n := len(c.Index)
	at := int(c.Index[0]) / b.f.group
	var t, d [maxGroup]float32
	var codes, best [maxGroup]byte
	copy(d[:], c.Pivots)
	for r := range c.Rows {
		if r >= b.rows {
			for j := range n {
				c.Decoded[j*c.Rows+r] = 0
			}
			continue
		}
		var peak float32
		for j := range n {
			t[j] = c.Targets[j*c.Rows+r]
			peak = max(peak, abs(t[j]))
		}
		least, found := math.Inf(1), -1
		if again {
			least = b.cost(c, r, t[:n])
		}
		list, count := b.candidates(peak)
		for _, s := range list[:count] {
			scale := b.scale(s)
			if scale == 0 && !(b.f.e4m3 && s == 0) {
				continue
			}
			if cost := b.feed(c, t[:n], d[:n], scale, codes[:n]); cost < least {
				least, found, best = cost, s, codes
			}
		}
		if found < 0 {
			for j := 0; j < n && !again; j++ { // zeros, whatever the scale
				c.Decoded[j*c.Rows+r] = 0
			}
			continue
		}
		b.scales[r*b.groups+at] = byte(found)
		s := b.scale(found)
		for j, col := range c.Index {
			b.codes[r*b.fb.cols+int(col)] = best[j]
			c.Decoded[j*c.Rows+r] = float32(s * b.value[best[j]])
		}
	}
}

// cost is what a row of a group costs as it is.
func (b *floatBlock) cost(c *Columns, r int, t []float32) (sum float64) {
	var errs [maxGroup]float32
	for j, v := range t {
		errs[j] = v - c.Decoded[j*c.Rows+r]
		var s float32
		for i, f := range c.Feedback[j*c.Stride:][:j] {
			s += float32(f * errs[i])
		}
		e := float64(s + errs[j])
		sum += float64(float64(c.Pivots[j]) * float64(e*e))
	}
	return sum
}

// feed codes targets with feedback and returns what it costs.
func (b *floatBlock) feed(c *Columns, t, d []float32, scale float32, codes []byte) (cost float64) {
	var errs [maxGroup]float32
	inv := float32(0)
	if scale > 0 {
		inv = 1 / scale
	}
	for j, v := range t {
		var s float32
		for i, f := range c.Feedback[j*c.Stride:][:j] {
			s += float32(f * errs[i])
		}
		x := v + s
		codes[j] = b.floatValues.code(float32(x * inv))
		y := float32(scale * b.value[codes[j]])
		errs[j] = v - y
		e := float64(x - y)
		cost += float64(float64(d[j]) * float64(e*e))
	}
	return cost
}
