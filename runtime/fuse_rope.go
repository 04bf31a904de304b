package runtime

import (
	"slices"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// Rotary embedding reaches a program as x·cos + [-x₂, x₁]·sin over the halves
// of the last axis. The fused form rounds where the products and their sum
// are rounded; negation, slices and concat are exact, so the result is the
// same bits.

// rope is one recognised pattern.
type rope struct {
	x, cos, sin *mil.Value // x [1,heads,T,D], or [1,T,heads,D] if turned
	turned      bool       // a transpose before it is absorbed
	heads, T, D int
	scale       float32 // a multiplication after it is absorbed; 1: none
}

// fuseRope recognises the pattern around the sum op.
func (l *lowering) fuseRope(sum *mil.Op) {
	for _, p := range [][2]string{{"x", "y"}, {"y", "x"}} {
		r := rope{scale: 1}
		parts, ok := r.find(l, l.onlyUse(sum.In(p[0]), "mul"), l.onlyUse(sum.In(p[1]), "mul"))
		if !ok || resultType(sum) != resultType(parts[0]) {
			continue
		}
		if t := r.x.Op; l.isPermutation(t, 0, 2, 1, 3) && l.uses[r.x] == 3 && !l.skip[t] && l.fused[t] == nil {
			r.turned, r.x = true, t.In("x")
			parts = append(parts, t)
		}
		end := sum
		if m := l.onlyUser(sum, "mul"); m != nil {
			if _, c, ok := scaledBy(m); ok && resultType(m) == resultType(sum) {
				r.scale, end = c, m
				parts = append(parts, sum)
			}
		}
		l.absorb(end, parts, func(l *lowering, op *mil.Op) (instr, error) { return l.rope(op, r, end != sum) })
		return
	}
}

// find matches the products with cos and sin; parts[0] is the first.
func (r *rope) find(l *lowering, even, odd *mil.Op) (parts []*mil.Op, ok bool) {
	if even == nil || odd == nil {
		return nil, false
	}
	for _, p := range [][2]string{{"x", "y"}, {"y", "x"}} {
		half := l.onlyUse(odd.In(p[0]), "concat")
		if half == nil || len(half.Ins("values")) != 2 || !l.joinsAt(half, 3) {
			continue
		}
		neg := l.onlyUse(half.Ins("values")[0], "mul")
		lo := l.onlyUse(half.Ins("values")[1], "slice_by_index")
		if neg == nil || lo == nil {
			return nil, false
		}
		v, c, ok := scaledBy(neg)
		hi := l.onlyUse(v, "slice_by_index")
		if !ok || c != -1 || hi == nil || hi.In("x") != lo.In("x") {
			return nil, false
		}
		r.x, r.sin = lo.In("x"), odd.In(p[1])
		s := shapeOf(r.x)
		if len(s) != 4 || s[0] != 1 || s[3]%2 != 0 || !l.sliceOf(lo, 3, 0, s[3]/2) || !l.sliceOf(hi, 3, s[3]/2, s[3]) {
			return nil, false
		}
		r.heads, r.T, r.D = s[1], s[2], s[3]
		for _, q := range [][2]string{{"x", "y"}, {"y", "x"}} {
			if even.In(q[0]) == r.x {
				r.cos = even.In(q[1])
			}
		}
		parts = []*mil.Op{even, odd, half, neg, lo, hi}
		return parts, r.rows(r.cos) && r.rows(r.sin) && oneType(parts, r.x, r.cos, r.sin)
	}
	return nil, false
}

// rows says that v holds a row of D for every token.
func (r *rope) rows(v *mil.Value) bool {
	s := shapeOf(v)
	return len(s) >= 2 && len(s) <= 4 && numElements(s) == r.T*r.D && slices.Equal(s[len(s)-2:], []int{r.T, r.D})
}

// oneType says that results and operands have the same element type.
func oneType(ops []*mil.Op, values ...*mil.Value) bool {
	d := resultType(ops[0])
	for _, op := range ops {
		if resultType(op) != d {
			return false
		}
	}
	for _, v := range values {
		if t, ok := v.Tensor(); !ok || t.DType != d {
			return false
		}
	}
	return true
}

type ropeTask struct {
	rope
	scaled      bool
	round       bool
	dst, x      []float32
	coss, sins  []float32
	hstep, step int // elements of x from head to head and from token to token
}

// run rotates rows lo to hi of the result, [heads,T].
func (p *ropeTask) run(lo, hi int) {
	d, half := p.D, p.D/2
	buf := scratchPool.Get().(*[]float32)
	defer scratchPool.Put(buf)
	turned := grown(buf, d)
	for r := lo; r < hi; r++ {
		t := r % p.T
		x := p.x[r/p.T*p.hstep+t*p.step:][:d]
		cos, sin := p.coss[t*d:][:d], p.sins[t*d:][:d]
		out := p.dst[r*d:][:d]
		kernel.Mul(turned[:half], x[half:], sin[:half])
		kernel.Mul(turned[half:], x[:half], sin[half:])
		kernel.Mul(out, x, cos)
		if p.round {
			kernel.RoundF16(turned)
			kernel.RoundF16(out)
		}
		kernel.Sub(out[:half], out[:half], turned[:half])
		kernel.Add(out[half:], out[half:], turned[half:])
		if p.round {
			kernel.RoundF16(out)
		}
		if p.scaled {
			kernel.MulScalar(out, out, p.scale)
			if p.round {
				kernel.RoundF16(out)
			}
		}
	}
}

func (l *lowering) rope(op *mil.Op, r rope, scaled bool) (instr, error) {
	x, err := l.slot(r.x)
	if err != nil {
		return instr{}, err
	}
	cos, err := l.slot(r.cos)
	if err != nil {
		return instr{}, err
	}
	sin, err := l.slot(r.sin)
	if err != nil {
		return instr{}, err
	}
	o, id, dt, round := l.result(op, 0), l.local(), resultType(op), l.rounds(op)
	return instr{out: []int{o}, exact: true, alias: -1, pattern: "rope", run: func(f *frame) error {
		p := local[ropeTask](f, id)
		p.rope, p.scaled, p.round = r, scaled, round
		p.hstep, p.step = r.T*r.D, r.D
		if r.turned {
			p.hstep, p.step = r.D, r.heads*r.D
		}
		p.x, p.coss, p.sins = f.t[x].F, f.t[cos].F, f.t[sin].F
		p.dst = f.out(o, dt, 1, r.heads, r.T, r.D).F
		f.pool.do(r.heads*r.T, 1+(1<<13)/r.D, p)
		p.x, p.coss, p.sins, p.dst = nil, nil, nil, nil
		return nil
	}}, nil
}
