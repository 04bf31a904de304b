package runtime

import (
	"sync"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// linearRows is the number of weight rows that one unit of work covers.
const linearRows = 16

// linearTask computes x·wᵀ + bias. A unit is linearRows columns of the result
// for all rows of x.
type linearTask struct {
	w     *weight
	dst   []float32
	x     []float32
	bias  []float32
	t     int
	round bool
	left  *kernel.Left // x in another form, if products are faster so
}

// leftRows is the number of weight rows of a unit where x is packed.
const leftRows = 32

// unit is the number of weight rows of a unit of work.
func (p *linearTask) unit() int {
	if p.left != nil {
		return leftRows
	}
	return linearRows
}

// packTask packs the rows of x for one product or several.
type packTask struct {
	left  kernel.Left
	ready bool // for the other products of this instruction
}

func (p *packTask) run(lo, hi int) { p.left.Pack(lo, hi) }

// pack brings x into the form that is best for weights in float32 and those
// that are decoded, once for all products of an instruction.
func (p *linearTask) pack(f *frame) {
	p.left = nil
	if p.w.f16 != nil {
		return
	}
	q := &f.packed
	if !q.ready {
		if !q.left.Prepare(p.x, p.w.k, p.t, p.w.n, p.w.k) {
			return
		}
		f.pool.do(q.left.Tiles(), 1, q)
		q.ready = true
	}
	p.left = &q.left
}

var scratchPool = sync.Pool{New: func() any { return new([]float32) }}

func (p *linearTask) run(lo, hi int) {
	w := p.w
	// Compressed rows are decoded a few at a time, to stay in the cache.
	step := hi - lo
	var scratch *[]float32
	if w.rows != nil {
		step = max(1, 1<<16/(p.unit()*w.k))
		scratch = scratchPool.Get().(*[]float32)
		defer scratchPool.Put(scratch)
	}
	for u := lo; u < hi; u += step {
		j0, j1 := u*p.unit(), min(min(u+step, hi)*p.unit(), w.n)
		if p.left != nil {
			w.mulLeft(p.dst, p.left, j0, j1, scratch)
		} else {
			w.mulRows(p.dst, p.x, p.t, j0, j1, scratch)
		}
		if p.bias == nil && !p.round {
			continue
		}
		for i := range p.t {
			row := p.dst[i*w.n+j0 : i*w.n+j1]
			if p.bias != nil {
				kernel.Add(row, row, p.bias[j0:j1])
			}
			if p.round {
				kernel.RoundF16(row)
			}
		}
	}
}

// fastLinear multiplies by a constant weight where it lies.
func fastLinear(l *lowering, op *mil.Op) (instr, bool, error) {
	w, bias, ok := l.linearParts(op)
	if !ok {
		return instr{}, false, nil
	}
	in, err := l.product(op, "x", w, bias)
	return in, err == nil, err
}

// linearParts reads weight and bias of a linear op; ok is false if they are
// not constants that products can use.
func (l *lowering) linearParts(op *mil.Op) (w *weight, bias []float32, ok bool) {
	w = l.weight(op.In("weight"))
	if w == nil || !floatResult(op) {
		return nil, nil, false
	}
	if b := op.In("bias"); b != nil {
		if b.Const == nil {
			return nil, nil, false
		}
		// A bias that cannot be decoded is for the general form to report.
		t, err := l.prog.consts.decode(b.Const)
		if err != nil || t.Len() != w.n {
			return nil, nil, false
		}
		if !allZero(t.F) {
			bias = t.F
		}
	}
	return w, bias, true
}

// product is the instruction x·wᵀ + bias over the last axis of x.
func (l *lowering) product(op *mil.Op, param string, w *weight, bias []float32) (instr, error) {
	x, err := l.must(op, param)
	if err != nil {
		return instr{}, err
	}
	o, id := l.result(op, 0), l.local()
	dt, round := resultType(op), l.rounds(op)
	bytes := l.storedBytes(op.In("weight"), op.In("y"))
	return instr{out: []int{o}, exact: true, alias: -1, weight: bytes, run: func(f *frame) error {
		p := local[linearTask](f, id)
		p.w, p.bias, p.round = w, bias, round
		f.packed.ready = false
		if err := p.bind(f, f.t[x], o, dt); err != nil {
			return err
		}
		f.pool.do(p.units(), 1+(1<<15)/(linearRows*w.k*max(p.t, 1)), p)
		p.dst, p.x = nil, nil
		return nil
	}}, nil
}

func allZero(x []float32) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}

// resultType is the element type of op's only result.
func resultType(op *mil.Op) mil.DType {
	if len(op.Outputs) != 1 {
		return mil.InvalidDType
	}
	t, ok := op.Outputs[0].Type.(mil.TensorType)
	if !ok {
		return mil.InvalidDType
	}
	return t.DType
}

// floatResult says that the result is of a type kernels compute: fp16, fp32.
func floatResult(op *mil.Op) bool { return mil.Floats.Has(resultType(op)) }

// rounds says that the result of op is to be rounded to fp16.
func (l *lowering) rounds(op *mil.Op) bool { return l.typed() && resultType(op) == mil.Float16 }
