package runtime

import "github.com/smelt-go/smelt/internal/kernel"

// One token over a long cache is too much work for a thread a head: scores
// are shared out by blocks of slots and mixes by blocks of columns, each
// element still being one sum in order.
const (
	blockWork    = 1 << 15 // elements of keys from which sharing pays
	blockSlots   = 64
	blockColumns = 128
)

func (p *attentionTask) blockwise(pl *pool) {
	s, d := p.open[0], p.dim
	width := s.width()
	rows := p.kv * p.group
	p.blocks = (width + blockSlots - 1) / blockSlots
	p.phase = scoreBlocks
	pl.do(p.kv*p.blocks, 1, p)
	for r := range rows {
		if !p.probabilities(p.sc[r*width:(r+1)*width], 0, s) && s != p.whole() {
			p.open = []span{p.whole()}
			p.blockwise(pl)
			return
		}
	}
	p.columns = (d + blockColumns - 1) / blockColumns
	p.phase = mixBlocks
	pl.do(p.kv*p.columns, 1, p)
}

// scoreBlocks computes blocks of blockSlots columns of the scores.
func (p *attentionTask) scoreBlocks(lo, hi int) {
	s := p.open[0]
	width := s.width()
	nc := s.c1 - s.c0
	for u := lo; u < hi; {
		h, b := u/p.blocks, u%p.blocks
		e := min(b+hi-u, p.blocks)
		from, to := b*blockSlots, min(e*blockSlots, width)
		part := span{
			s.c0 + min(from, nc), s.c0 + min(to, nc),
			s.n0 + max(from-nc, 0), s.n0 + max(to-nc, 0),
		}
		p.scores(p.sc[h*p.group*width+from:], width, p.qs[h*p.group*p.dim:], p.group, h, part)
		u += e - b
	}
}

// mixBlocks computes blocks of blockColumns columns of the result.
func (p *attentionTask) mixBlocks(lo, hi int) {
	s, d := p.open[0], p.dim
	width, nc := s.width(), s.c1-s.c0
	for u := lo; u < hi; u++ {
		h, j := u/p.columns, u%p.columns*blockColumns
		n := min(blockColumns, d-j)
		sc := p.sc[h*p.group*width:]
		m0, m1 := p.mix[2*h*p.group*d:], p.mix[(2*h+1)*p.group*d:]
		kernel.MulNN(m0[j:], d, sc, width, p.group, p.v0[(h*p.slots+s.c0)*d+j:], d, nc, n)
		if p.fresh > 0 {
			kernel.MulNN(m1[j:], d, sc[nc:], width, p.group, p.v1[(h*p.fresh+s.n0)*d+j:], d, s.n1-s.n0, n)
		}
		for g := range p.group {
			a, b := m0[g*d+j:][:n], m1[g*d+j:][:n]
			p.join(a, b)
			copy(p.dst[p.place(h, g, 0)+j:][:n], a)
		}
	}
}
