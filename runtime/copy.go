package runtime

import "unsafe"

// Movement copies bits and does not care what they mean: every element is one
// 32-bit word.

// words views the elements of t.
func (t *Tensor) words() []uint32 {
	if t.F != nil {
		return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(t.F))), len(t.F))
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(t.I))), len(t.I))
}

// loop is one loop of a strided copy: n steps of d words in the destination
// and s words in the source. Steps may be zero or negative.
type loop struct{ n, d, s int }

// tile is the edge of the blocks in which a transposition walks, small enough
// that a block's lines of both sides stay in the first cache level.
const tile = 16

// copyGrain is the number of words that justify another worker.
const copyGrain = 1 << 14

// nest simplifies a loop nest: loops of one step vanish, adjacent loops that
// walk both sides as one merge. ok is false if there is nothing to do.
func nest(loops []loop) (out []loop, ok bool) {
	for _, l := range loops {
		if l.n == 0 {
			return nil, false
		}
		if l.n == 1 {
			continue
		}
		if k := len(out) - 1; k >= 0 && out[k].d == l.n*l.d && out[k].s == l.n*l.s {
			out[k] = loop{out[k].n * l.n, l.d, l.s}
			continue
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		out = append(out, loop{1, 1, 1})
	}
	return out, true
}

// contiguous reports whether a simplified nest is one run on both sides.
func contiguous(loops []loop) bool { return len(loops) == 1 && loops[0].d == 1 && loops[0].s == 1 }

// copyPlan is a loop nest ready to run: the loops of outer go through m calls
// of copyInner with the loops of in, of per words each. m is 0 if there is
// nothing to do.
type copyPlan struct {
	outer, in []loop
	m, per    int
}

func planCopy(loops []loop) copyPlan {
	ls, ok := nest(loops)
	if !ok {
		return copyPlan{}
	}
	inner := pickInner(ls)
	k := len(ls) - inner
	p := copyPlan{outer: ls[:k], in: ls[k:], m: 1, per: 1}
	for _, l := range p.outer {
		p.m *= l.n
	}
	for _, l := range p.in {
		p.per *= l.n
	}
	return p
}

// copyTask is one run of a plan, from src[so] to dst[do]. A unit of work is a
// call of copyInner, or a step of its first loop if there is one call only.
type copyTask struct {
	copyPlan
	dst, src []uint32
	do, so   int
}

// maxLoops bounds the outer loops of a nest: two for each axis of a tensor.
const maxLoops = 2 * maxRank

func (c *copyTask) run(lo, hi int) {
	if c.m == 1 {
		first := c.in[0]
		part := [2]loop{{hi - lo, first.d, first.s}}
		body := append(part[:1], c.in[1:]...)
		copyInner(c.dst, c.do+lo*first.d, c.src, c.so+lo*first.s, body)
		return
	}
	var at [maxLoops]int
	k := len(c.outer)
	idx := at[:k]
	d, s := c.do, c.so
	for i, r := k-1, lo; i >= 0; i-- {
		idx[i] = r % c.outer[i].n
		r /= c.outer[i].n
		d += idx[i] * c.outer[i].d
		s += idx[i] * c.outer[i].s
	}
	for range hi - lo {
		copyInner(c.dst, d, c.src, s, c.in)
		for i := k - 1; i >= 0; i-- {
			d += c.outer[i].d
			s += c.outer[i].s
			if idx[i]++; idx[i] < c.outer[i].n {
				break
			}
			d -= c.outer[i].n * c.outer[i].d
			s -= c.outer[i].n * c.outer[i].s
			idx[i] = 0
		}
	}
}

// start runs the task on the frame's pool.
func (c *copyTask) start(f *frame) {
	switch {
	case c.m == 0:
	case c.m == 1:
		n := c.in[0].n
		f.pool.do(n, max(1, copyGrain*n/c.per), c)
	default:
		f.pool.do(c.m, max(1, copyGrain/c.per), c)
	}
}

// copyLoops copies the word at so+Σ iₖ·sₖ to do+Σ iₖ·dₖ for every index of the
// loops. No word of dst may be written twice.
func (f *frame) copyLoops(dst []uint32, do int, src []uint32, so int, loops []loop) {
	c := &copyTask{copyPlan: planCopy(loops), dst: dst, do: do, src: src, so: so}
	c.start(f)
}

// pickInner orders the loops so that the last one or two, whose number it
// returns, are what one call of copyInner handles well: a run, or a
// transposition.
func pickInner(ls []loop) int {
	last := len(ls) - 1
	toEnd := func(i, end int) {
		l := ls[i]
		copy(ls[i:], ls[i+1:end+1])
		ls[end] = l
	}
	for i, l := range ls {
		if l.d == 1 {
			toEnd(i, last)
			break
		}
	}
	if ls[last].d != 1 || ls[last].s == 1 || ls[last].s == 0 {
		return 1
	}
	for i, l := range ls[:last] {
		if l.s == 1 {
			toEnd(i, last-1)
			return 2
		}
	}
	return 1
}

func copyInner(dst []uint32, d int, src []uint32, s int, loops []loop) {
	if len(loops) == 2 {
		transposeTiles(dst, d, src, s, loops[0], loops[1])
		return
	}
	l := loops[0]
	switch {
	case l.d == 1 && l.s == 1:
		copy(dst[d:d+l.n], src[s:s+l.n])
	case l.d == 1 && l.s == 0:
		v := src[s]
		run := dst[d : d+l.n]
		for i := range run {
			run[i] = v
		}
	case l.d == 1:
		run := dst[d : d+l.n]
		for i := range run {
			run[i] = src[s]
			s += l.s
		}
	default:
		for range l.n {
			dst[d] = src[s]
			d += l.d
			s += l.s
		}
	}
}

// transposeTiles copies with the source contiguous along a and the
// destination contiguous along b.
func transposeTiles(dst []uint32, d int, src []uint32, s int, a, b loop) {
	for i0 := 0; i0 < a.n; i0 += tile {
		ni := min(tile, a.n-i0)
		for j0 := 0; j0 < b.n; j0 += tile {
			nj := min(tile, b.n-j0)
			for i := i0; i < i0+ni; i++ {
				from := s + i + j0*b.s
				to := d + i*a.d + j0
				run := dst[to : to+nj]
				for j := range run {
					run[j] = src[from]
					from += b.s
				}
			}
		}
	}
}

// fillWords sets every word of dst.
func (f *frame) fillWords(dst []uint32, v uint32) {
	f.par(len(dst), copyGrain, func(lo, hi int) {
		run := dst[lo:hi]
		for i := range run {
			run[i] = v
		}
	})
}

// axesLoops are the loops over a dense tensor of the given shape, whose axis
// k is walked with step s[k] in the source.
func axesLoops(shape, s []int) []loop {
	d := strides(shape)
	out := make([]loop, len(shape))
	for k, n := range shape {
		out[k] = loop{n, d[k], s[k]}
	}
	return out
}
