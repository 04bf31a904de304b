package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// Linear layers that read the same tensor run as one loop: the workers meet
// once for all of them, and small ones do not leave a worker idle. Where two
// of them are only multiplied with each other, one through an activation, the
// product is taken while their results are in the cache.

// activations are those that a gate may have.
var activations = map[string]func(dst, x []float32){"silu": kernel.Silu, "gelu": kernel.GeluTanh}

// linearOf is a linear op with the weight that it reads in place.
type linearOf struct {
	op   *mil.Op
	w    *weight
	bias []float32
}

// fuseProducts groups the linear ops of a list by their input.
func (l *lowering) fuseProducts(ops []*mil.Op) {
	groups := map[*mil.Value][]linearOf{}
	var order []*mil.Value
	for _, op := range ops {
		if op.Kind != "linear" || l.skip[op] || l.fused[op] != nil {
			continue
		}
		w, bias, ok := l.linearParts(op)
		x := op.In("x")
		if !ok || x == nil {
			continue
		}
		if len(groups[x]) == 0 {
			order = append(order, x)
		}
		groups[x] = append(groups[x], linearOf{op, w, bias})
	}
	for _, x := range order {
		g := groups[x]
		if len(g) == 2 && l.fuseGate(g) {
			continue
		}
		if len(g) > 1 {
			var rest []*mil.Op
			for _, p := range g[1:] {
				rest = append(rest, p.op)
			}
			l.absorb(g[0].op, rest, func(l *lowering, _ *mil.Op) (instr, error) { return l.products(g) })
		}
	}
}

// fuseGate recognises act(gate)·up.
func (l *lowering) fuseGate(g []linearOf) bool {
	for _, p := range [][2]linearOf{{g[0], g[1]}, {g[1], g[0]}} {
		gate, up := p[0], p[1]
		for kind, f := range activations {
			act := l.onlyUser(gate.op, kind)
			if act == nil || !l.knownActivation(act) {
				continue
			}
			mul := l.onlyUser(act, "mul")
			if mul == nil || mul != l.onlyUser(up.op, "mul") || gate.w.n != up.w.n || !oneType([]*mil.Op{gate.op, up.op, act, mul}) {
				continue
			}
			l.absorb(mul, []*mil.Op{gate.op, up.op, act}, func(l *lowering, op *mil.Op) (instr, error) {
				return l.gated(op, gate, up, f)
			})
			return true
		}
	}
	return false
}

// knownActivation says that op is the form that has a kernel.
func (l *lowering) knownActivation(op *mil.Op) bool {
	if op.Kind != "gelu" {
		return true
	}
	c := l.infer(op)
	return constants(c, "mode") && c.Str("mode", "EXACT") == "TANH_APPROXIMATION"
}

// productsTask computes several products with the same x. Units are numbered
// through all of them.
type productsTask struct {
	parts []linearTask
	ends  []int // units up to and with the part
}

func (p *productsTask) run(lo, hi int) {
	from := 0
	for i, end := range p.ends {
		if a, b := max(lo, from), min(hi, end); a < b {
			p.parts[i].run(a-from, b-from)
		}
		from = end
	}
}

// products is the instruction of a group.
func (l *lowering) products(g []linearOf) (instr, error) {
	x, err := l.must(g[0].op, "x")
	if err != nil {
		return instr{}, err
	}
	in := instr{exact: true, alias: -1, pattern: "linears"}
	id := l.local()
	types := make([]mil.DType, len(g))
	round := make([]bool, len(g))
	for i, p := range g {
		in.out = append(in.out, l.result(p.op, 0))
		in.weight += l.storedBytes(p.op.In("weight"))
		types[i], round[i] = resultType(p.op), l.rounds(p.op)
	}
	outs := in.out
	in.run = func(f *frame) error {
		t := f.t[x]
		p := local[productsTask](f, id)
		if p.parts == nil {
			p.parts, p.ends = make([]linearTask, len(g)), make([]int, len(g))
		}
		f.packed.ready = false
		units, work := 0, 0
		for i := range g {
			q := &p.parts[i]
			q.w, q.bias, q.round = g[i].w, g[i].bias, round[i]
			if err := q.bind(f, t, outs[i], types[i]); err != nil {
				return err
			}
			units += q.units()
			work += q.w.n * q.w.k * max(q.t, 1)
			p.ends[i] = units
		}
		f.pool.do(units, 1+(1<<15)*units/(work+1), p)
		for i := range p.parts {
			p.parts[i].dst, p.parts[i].x = nil, nil
		}
		return nil
	}
	return in, nil
}

// bind prepares the product of t into slot o.
func (p *linearTask) bind(f *frame, t *Tensor, o int, dt mil.DType) error {
	w := p.w
	r := len(t.Shape)
	if r == 0 || r > maxRank || t.Shape[r-1] != w.k {
		return fmt.Errorf("x is %v, but the weight has rows of %d", t, w.k)
	}
	var shape [maxRank]int
	copy(shape[:], t.Shape)
	shape[r-1] = w.n
	p.dst, p.x, p.t = f.out(o, dt, shape[:r]...).F, t.F, len(t.F)/w.k
	p.pack(f)
	return nil
}

// units is the number of units of work.
func (p *linearTask) units() int { return (p.w.n + p.unit() - 1) / p.unit() }

// gatedTask computes act(gate)·up; a unit is linearRows columns of both.
type gatedTask struct {
	gate, up linearTask
	act      func(dst, x []float32)
}

func (p *gatedTask) run(lo, hi int) {
	p.gate.run(lo, hi)
	p.up.run(lo, hi)
	n := p.gate.w.n
	j0, j1 := lo*p.gate.unit(), min(hi*p.gate.unit(), n)
	for i := range p.gate.t {
		a, b := p.gate.dst[i*n+j0:i*n+j1], p.up.dst[i*n+j0:i*n+j1]
		p.act(a, a)
		if p.gate.round {
			kernel.RoundF16(a)
		}
		kernel.Mul(a, a, b)
		if p.gate.round {
			kernel.RoundF16(a)
		}
	}
}

func (l *lowering) gated(op *mil.Op, gate, up linearOf, act func(dst, x []float32)) (instr, error) {
	x, err := l.must(gate.op, "x")
	if err != nil {
		return instr{}, err
	}
	o, tmp, id := l.result(op, 0), l.newSlot(), l.local()
	dt, round := resultType(op), l.rounds(op)
	bytes := l.storedBytes(gate.op.In("weight"), up.op.In("weight"))
	return instr{out: []int{o}, exact: true, alias: -1, pattern: "gated", weight: bytes, run: func(f *frame) error {
		p := local[gatedTask](f, id)
		p.act = act
		p.gate.w, p.gate.bias, p.gate.round = gate.w, gate.bias, round
		p.up.w, p.up.bias, p.up.round = up.w, up.bias, round
		t := f.t[x]
		f.packed.ready = false
		if err := p.gate.bind(f, t, o, dt); err != nil {
			return err
		}
		if err := p.up.bind(f, t, tmp, dt); err != nil {
			return err
		}
		if p.gate.left == nil || p.up.left == nil { // units are the same columns
			p.gate.left, p.up.left = nil, nil
		}
		f.pool.do(p.gate.units(), 1+(1<<14)/(linearRows*gate.w.k*max(p.gate.t, 1)), p)
		p.gate.dst, p.gate.x, p.up.dst, p.up.x = nil, nil, nil, nil
		return nil
	}}, nil
}
