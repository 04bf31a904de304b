package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// chunk is the number of elements that are computed and then rounded while
// they are in the first-level cache.
const chunk = 1 << 11

// unaryTask applies a kernel to chunks.
type unaryTask struct {
	dst, x []float32
	f      func(dst, x []float32)
	round  bool
}

func (p *unaryTask) run(lo, hi int) {
	for u := lo; u < hi; u++ {
		a, b := u*chunk, min((u+1)*chunk, len(p.dst))
		p.f(p.dst[a:b], p.x[a:b])
		if p.round {
			kernel.RoundF16(p.dst[a:b])
		}
	}
}

func chunks(n int) int { return (n + chunk - 1) / chunk }

func fastUnary(f func(dst, x []float32)) fastLowerer {
	return func(l *lowering, op *mil.Op) (instr, bool, error) {
		if !floatResult(op) {
			return instr{}, false, nil
		}
		x, err := l.must(op, "x")
		if err != nil {
			return instr{}, false, err
		}
		o, id, round := l.result(op, 0), l.local(), l.rounds(op)
		return instr{out: []int{o}, exact: true, alias: -1, run: func(fr *frame) error {
			t := fr.t[x]
			y := fr.out(o, t.DType, t.Shape...)
			p := local[unaryTask](fr, id)
			p.dst, p.x, p.f, p.round = y.F, t.F, f, round
			fr.pool.do(chunks(len(y.F)), 4, p)
			p.dst, p.x = nil, nil
			return nil
		}}, true, nil
	}
}

func fastGelu(l *lowering, op *mil.Op) (instr, bool, error) {
	c := l.infer(op)
	if !constants(c, "mode") || c.Str("mode", "EXACT") != "TANH_APPROXIMATION" {
		return instr{}, false, nil
	}
	return fastUnary(kernel.GeluTanh)(l, op)
}

// binaryOp is an arithmetic operator with its forms for one scalar operand.
type binaryOp struct {
	full        func(dst, a, b []float32)
	right, left func(dst, a []float32, c float32) // a∘c, c∘a
}

var (
	addOp = binaryOp{full: kernel.Add, right: kernel.AddScalar, left: kernel.AddScalar}
	mulOp = binaryOp{full: kernel.Mul, right: kernel.MulScalar, left: kernel.MulScalar}
	// a-c is a+(-c) and c-a is (-a)+c, to the sign of zero.
	subOp = binaryOp{
		full:  kernel.Sub,
		right: func(dst, a []float32, c float32) { kernel.AddScalar(dst, a, -c) },
		left: func(dst, a []float32, c float32) {
			kernel.MulScalar(dst, a, -1)
			kernel.AddScalar(dst, dst, c)
		},
	}
)

// binaryTask walks two operands broadcast to a common shape: outer axes by
// index, the innermost run by a kernel. A unit is a chunk of a run.
type binaryTask struct {
	op        binaryOp
	dst, a, b []float32
	rank      int // outer axes
	dims      [maxRank]int
	as, bs    [maxRank]int
	length    int // elements of the innermost run
	sa, sb    int // 1, or 0 for a scalar
	round     bool
}

func (p *binaryTask) run(lo, hi int) {
	per := chunks(p.length)
	for u := lo; u < hi; u++ {
		row, from := u/per, u%per*chunk
		n := min(chunk, p.length-from)
		ao, bo := 0, 0
		for i, r := p.rank-1, row; i >= 0; i-- {
			k := r % p.dims[i]
			r /= p.dims[i]
			ao += k * p.as[i]
			bo += k * p.bs[i]
		}
		dst := p.dst[row*p.length+from:][:n]
		switch {
		case p.sa == 1 && p.sb == 1:
			p.op.full(dst, p.a[ao+from:][:n], p.b[bo+from:][:n])
		case p.sa == 1:
			p.op.right(dst, p.a[ao+from:][:n], p.b[bo])
		default:
			p.op.left(dst, p.b[bo+from:][:n], p.a[ao])
		}
		if p.round {
			kernel.RoundF16(dst)
		}
	}
}

// plan merges the axes of a and b over shape: neighbours that both operands
// walk, or both repeat, in the same way become one.
func (p *binaryTask) plan(shape, as, bs []int) {
	p.rank = 0
	var dims, sa, sb [maxRank + 1]int
	n := 0 // axes so far, innermost first
	ea, eb := 1, 1
	for i := len(shape) - 1; i >= 0; i-- {
		da, db := dimAt(as, i-len(shape)+len(as)), dimAt(bs, i-len(shape)+len(bs))
		d, ta, tb := shape[i], ea, eb
		ea *= da
		eb *= db
		if d == 1 {
			continue
		}
		if da == 1 {
			ta = 0
		}
		if db == 1 {
			tb = 0
		}
		if n > 0 && ta == sa[n-1]*dims[n-1] && tb == sb[n-1]*dims[n-1] {
			dims[n-1] *= d
			continue
		}
		dims[n], sa[n], sb[n] = d, ta, tb
		n++
	}
	if n == 0 {
		dims[0], sa[0], sb[0], n = 1, 1, 1, 1
	}
	p.length, p.sa, p.sb = dims[0], sa[0], sb[0]
	p.rank = n - 1
	for i := range p.rank {
		p.dims[i], p.as[i], p.bs[i] = dims[n-1-i], sa[n-1-i], sb[n-1-i]
	}
}

func fastBinary(k binaryOp) fastLowerer {
	return func(l *lowering, op *mil.Op) (instr, bool, error) {
		c := l.infer(op)
		xt, yt := c.T("x"), c.T("y")
		if !floatResult(op) || !mil.Floats.Has(xt.DType) || !mil.Floats.Has(yt.DType) || max(xt.Rank(), yt.Rank()) > maxRank {
			return instr{}, false, nil
		}
		x, err := l.must(op, "x")
		if err != nil {
			return instr{}, false, err
		}
		y, err := l.must(op, "y")
		if err != nil {
			return instr{}, false, err
		}
		o, id, dt, round := l.result(op, 0), l.local(), resultType(op), l.rounds(op)
		return instr{out: []int{o}, exact: true, alias: -1, run: func(f *frame) error {
			a, b := f.t[x], f.t[y]
			var shape [maxRank]int
			r, err := broadcastInto(&shape, a, b)
			if err != nil {
				return err
			}
			t := f.out(o, dt, shape[:r]...)
			if len(t.F) == 0 {
				return nil
			}
			p := local[binaryTask](f, id)
			p.op, p.dst, p.a, p.b, p.round = k, t.F, a.F, b.F, round
			p.plan(shape[:r], a.Shape, b.Shape)
			f.pool.do(len(t.F)/p.length*chunks(p.length), 1+(1<<13)/min(p.length, chunk), p)
			p.dst, p.a, p.b = nil, nil, nil
			return nil
		}}, true, nil
	}
}

// broadcastInto is mil.Broadcast without allocation.
func broadcastInto(shape *[maxRank]int, a, b *Tensor) (rank int, err error) {
	rank = max(len(a.Shape), len(b.Shape))
	for i := range rank {
		da, db := dimAt(a.Shape, i-rank+len(a.Shape)), dimAt(b.Shape, i-rank+len(b.Shape))
		switch {
		case da == db, db == 1:
			shape[i] = da
		case da == 1:
			shape[i] = db
		default:
			return 0, fmt.Errorf("x %v and y %v do not broadcast", a, b)
		}
	}
	return rank, nil
}

// fastInts handles integer vectors of one length: positions in a cache, which
// every step computes.
func fastInts(f func(a, b int32) int32) fastLowerer {
	return func(l *lowering, op *mil.Op) (instr, bool, error) {
		c := l.infer(op)
		xt, yt := c.T("x"), c.T("y")
		if resultType(op) != mil.Int32 || xt.DType != mil.Int32 || !xt.Equal(yt) || xt.Rank() != 1 || xt.NumElements() < 0 {
			return instr{}, false, nil
		}
		x, err := l.must(op, "x")
		if err != nil {
			return instr{}, false, err
		}
		y, err := l.must(op, "y")
		if err != nil {
			return instr{}, false, err
		}
		o := l.result(op, 0)
		return instr{out: []int{o}, exact: true, alias: -1, run: func(fr *frame) error {
			a, b := fr.t[x].I, fr.t[y].I
			t := fr.out(o, mil.Int32, len(a))
			for i, v := range a {
				t.I[i] = f(v, b[i])
			}
			return nil
		}}, true, nil
	}
}
