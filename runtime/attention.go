package runtime

import (
	"sync"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// Attention runs as one operator that reads only the part of the cache that
// the mask leaves open. It goes through the same roundings in the same order
// as the ops it stands for, and its result is the same bits: a closed slot
// has a probability that underflows to zero, and adding zeros to a sum does
// not change it. The two ranges of columns that are computed, of the cache
// and of the new tokens, begin at multiples of the softmax's lanes, so that
// every term stays in its lane.
//
// Closed means a mask of closedMask or less. That the probability underflows
// takes scores whose distance is less than the mask: a query with a score
// beyond scoreLimit is computed over all slots, as the program says.
const (
	closedMask = -1e4
	scoreLimit = 4900
	laneAlign  = 16
)

// tileFloats bounds the scores that a unit of work keeps, tileRows their rows.
const (
	tileFloats = 1 << 16
	tileRows   = 48
)

// span is the part of a row of scores that is computed: columns [c0,c1) of
// the cache and [n0,n1) of the new tokens.
type span struct{ c0, c1, n0, n1 int }

func (s span) width() int { return s.c1 - s.c0 + s.n1 - s.n0 }

// attentionTask is the loop over key heads and tiles of tokens.
type attentionTask struct {
	*attention
	round           bool
	tile            int // tokens of a unit
	dst, qs, mk     []float32
	k0, k1, v0, v1  []float32
	open            []span // by tile
	phase           attentionPhase
	sc, mix         []float32 // of a single token: scores [kv,group,width], mixes [kv,2,group,dim]
	columns, blocks int
}

type attentionPhase int

const (
	wholeTiles attentionPhase = iota
	scoreBlocks
	mixBlocks
)

var attentionScratch = sync.Pool{New: func() any { return new([]float32) }}

// grown returns a slice of n elements in *buf.
func grown(buf *[]float32, n int) []float32 {
	if cap(*buf) < n {
		*buf = make([]float32, n)
	}
	return (*buf)[:n]
}

func (p *attentionTask) run(lo, hi int) {
	switch p.phase {
	case scoreBlocks:
		p.scoreBlocks(lo, hi)
		return
	case mixBlocks:
		p.mixBlocks(lo, hi)
		return
	}
	buf := attentionScratch.Get().(*[]float32)
	defer attentionScratch.Put(buf)
	tiles := p.tiles()
	for u := lo; u < hi; u++ {
		h, i := u/tiles, u%tiles
		t0 := i * p.tile
		p.unit(buf, h, t0, min(t0+p.tile, p.tokens), p.open[i])
	}
}

func (p *attentionTask) tiles() int { return (p.tokens + p.tile - 1) / p.tile }

// whole is the span of all columns.
func (p *attentionTask) whole() span { return span{0, p.slots, 0, p.fresh} }

// unit computes the tokens [t0,t1) of key head h.
func (p *attentionTask) unit(buf *[]float32, h, t0, t1 int, s span) {
	n, d := t1-t0, p.dim
	rows, width := p.group*n, s.width()
	// As large as for all slots, so that it serves as the cache fills up.
	all := grown(buf, rows*(p.attention.width()+3*d))
	sc, q, m0, m1 := all[:rows*width], all[rows*width:][:rows*d], all[rows*(width+d):][:rows*d], all[rows*(width+2*d):][:rows*d]
	for g := range p.group {
		copy(q[g*n*d:(g+1)*n*d], p.qs[((h*p.group+g)*p.tokens+t0)*d:])
	}
	p.scores(sc, width, q, rows, h, s)
	for r := range rows {
		if !p.probabilities(sc[r*width:(r+1)*width], t0+r%n, s) && s != p.whole() {
			p.unit(buf, h, t0, t1, p.whole())
			return
		}
	}
	nc := s.c1 - s.c0
	kernel.MulNN(m0, d, sc, width, rows, p.v0[(h*p.slots+s.c0)*d:], d, nc, d)
	if p.fresh > 0 {
		kernel.MulNN(m1, d, sc[nc:], width, rows, p.v1[(h*p.fresh+s.n0)*d:], d, s.n1-s.n0, d)
	}
	p.join(m0, m1)
	for r := range rows {
		copy(p.dst[p.place(h, r/n, t0+r%n):][:d], m0[r*d:])
	}
}

// place is where the result of a token for query head g of key head h goes.
func (p *attentionTask) place(h, g, t int) int {
	head := h*p.group + g
	if p.flat {
		return (t*p.kv*p.group + head) * p.dim
	}
	return (head*p.tokens + t) * p.dim
}

// scores computes rows of q against the keys of head h in span s.
func (p *attentionTask) scores(dst []float32, width int, q []float32, rows, h int, s span) {
	d, nc := p.dim, s.c1-s.c0
	if nc > 0 {
		kernel.MulF32(dst, width, q, d, rows, p.k0[(h*p.slots+s.c0)*d:], d, nc, d)
	}
	if s.n1 > s.n0 {
		kernel.MulF32(dst[nc:], width, q, d, rows, p.k1[(h*p.fresh+s.n0)*d:], d, s.n1-s.n0, d)
	}
}

// probabilities turns the scores of token t into probabilities; false if they
// leave the range in which closed slots need not be looked at.
func (p *attentionTask) probabilities(row []float32, t int, s span) bool {
	if p.round {
		kernel.RoundF16(row)
	}
	mask := p.mk[t*p.attention.width():][:p.attention.width()]
	nc := s.c1 - s.c0
	kernel.Add(row[:nc], row[:nc], mask[s.c0:s.c1])
	kernel.Add(row[nc:], row[nc:], mask[p.slots+s.n0:p.slots+s.n1])
	if p.round {
		kernel.RoundF16(row)
	}
	// The largest open score; if it is that of a closed slot, it is below.
	top := kernel.Max(row)
	kernel.Softmax(row, row)
	if p.round {
		kernel.RoundF16(row)
	}
	return -scoreLimit <= top && top <= scoreLimit
}

// join adds two mixes, rounding each and the sum; of one it rounds that.
func (p *attentionTask) join(m0, m1 []float32) {
	if p.round {
		kernel.RoundF16(m0)
	}
	if p.fresh == 0 {
		return
	}
	if p.round {
		kernel.RoundF16(m1)
	}
	kernel.Add(m0, m0, m1)
	if p.round {
		kernel.RoundF16(m0)
	}
}

// findOpen sets the span of every tile from the mask.
func (p *attentionTask) findOpen() {
	p.open = p.open[:0]
	width := p.attention.width()
	for t0 := 0; t0 < p.tokens; t0 += p.tile {
		s := span{p.slots, 0, p.fresh, 0}
		for t := t0; t < min(t0+p.tile, p.tokens); t++ {
			row := p.mk[t*width : (t+1)*width]
			lo, hi := openRange(row[:p.slots], s.c0, s.c1)
			s.c0, s.c1 = lo, hi
			lo, hi = openRange(row[p.slots:], s.n0, s.n1)
			s.n0, s.n1 = lo, hi
		}
		p.open = append(p.open, p.aligned(s))
	}
}

// openRange widens [lo,hi) so that everything outside of it is closed.
func openRange(row []float32, lo, hi int) (int, int) {
	a := 0
	for a < lo && row[a] <= closedMask {
		a++
	}
	b := len(row)
	for b > hi && row[b-1] <= closedMask {
		b--
	}
	return a, max(b, hi)
}

// aligned widens a span so that every column keeps its lane.
func (p *attentionTask) aligned(s span) span {
	if s.c0 >= s.c1 && s.n0 >= s.n1 {
		return p.whole() // nothing is open: every closed slot counts
	}
	if p.slots%laneAlign != 0 && p.fresh > 0 {
		// New tokens follow the cache in the middle of the lanes.
		s.c0 = min(s.c0, p.slots) &^ (laneAlign - 1)
		return span{s.c0, p.slots, 0, p.fresh}
	}
	up := func(n int) int { return (n + laneAlign - 1) &^ (laneAlign - 1) }
	if s.c0 >= s.c1 {
		s.c0, s.c1 = 0, 0
	}
	if s.n0 >= s.n1 {
		s.n0, s.n1 = 0, 0
	}
	s.c0, s.c1 = s.c0&^(laneAlign-1), min(up(s.c1), p.slots)
	s.n0, s.n1 = s.n0&^(laneAlign-1), min(up(s.n1), p.fresh)
	return s
}

// attention is the instruction of the pattern.
func (l *lowering) attention(op *mil.Op, a *attention) (instr, error) {
	var in [6]int
	for i, v := range a.operands() {
		s, err := l.slot(v)
		if err != nil {
			return instr{}, err
		}
		in[i] = s
	}
	o, id := l.result(op, 0), l.local()
	dt, round := resultType(op), l.rounds(op)
	shape := shapeOf(op.Out())
	// A mask that is an input of the function stays the same during a run.
	fixed := contains(l.code.inputs, in[1])
	var shared int
	if fixed {
		shared = l.maskLocal(in[1], a)
	}
	return instr{out: []int{o}, exact: true, alias: -1, pattern: "attention",
		moves: func(f *frame) int64 { return local[attentionTask](f, id).bytes() },
		run: func(f *frame) error {
			p := local[attentionTask](f, id)
			if p.attention == nil {
				p.attention, p.round = a, round
				p.tile = a.tileTokens()
			}
			p.qs, p.mk = f.t[in[0]].F, f.t[in[1]].F
			p.k0, p.v0 = f.t[in[2]].F, f.t[in[3]].F
			if a.fresh > 0 {
				p.k1, p.v1 = f.t[in[4]].F, f.t[in[5]].F
			}
			p.dst = f.out(o, dt, shape...).F
			if fixed {
				m := local[openSpans](f, shared)
				if m.run != f.runs {
					p.findOpen()
					m.run, m.spans = f.runs, append(m.spans[:0], p.open...)
				}
				p.open = m.spans
			} else {
				p.findOpen()
			}
			p.start(f)
			p.sc, p.mix = nil, nil
			p.qs, p.mk, p.k0, p.k1, p.v0, p.v1, p.dst = nil, nil, nil, nil, nil, nil, nil
			return nil
		}}, nil
}

// openSpans are those of one mask, shared by the layers that use it.
type openSpans struct {
	run   int
	spans []span
}

type maskKey struct{ slot, tokens, slots, fresh, tile int }

func (l *lowering) maskLocal(slot int, a *attention) int {
	k := maskKey{slot, a.tokens, a.slots, a.fresh, a.tileTokens()}
	if id, ok := l.masks[k]; ok {
		return id
	}
	l.masks[k] = l.local()
	return l.masks[k]
}

// tileTokens is the number of tokens of a unit of work.
func (a *attention) tileTokens() int {
	rows := min(tileRows, max(1, tileFloats/a.width()))
	return min(a.tokens, max(1, rows/a.group))
}

// start runs the task: tile by tile, or, for one token over a long cache, in
// three steps that share the work of a head.
func (p *attentionTask) start(f *frame) {
	pl := f.pool
	if p.tokens == 1 && pl.n > 1 && p.kv*p.open[0].width()*p.dim >= blockWork {
		rows := p.kv * p.group
		all := grown(&f.scratch, rows*(p.attention.width()+2*p.dim))
		p.mix, p.sc = all[:2*rows*p.dim], all[2*rows*p.dim:]
		p.blockwise(pl)
		return
	}
	p.phase = wholeTiles
	work := p.group * p.tile * p.open[len(p.open)-1].width() * p.dim
	pl.do(p.kv*p.tiles(), 1+(1<<16)/max(1, work), p)
}

// bytes is what the last run has read and written.
func (p *attentionTask) bytes() int64 {
	n := 2 * p.kv * p.group * p.tokens * p.dim
	lo, hi, fresh := p.slots, 0, 0
	for _, s := range p.open {
		if s.c1 > s.c0 {
			lo, hi = min(lo, s.c0), max(hi, s.c1)
		}
		fresh = max(fresh, s.n1)
	}
	return 4 * int64(n+2*p.kv*(max(0, hi-lo)+fresh)*p.dim+p.tokens*p.attention.width())
}
