package quant

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/littleendian"
)

// Stats are sums over coded weights.
type Stats struct {
	Elements int64
	Energy   float64 // Σ w²
	Error    float64 // Σ (w − decoded)², decoded in float32 from the stored parameters

	// With error feedback, in the norm of the (damped) Hessian, with an importance
	// in that of its diagonal: Σ (W − decoded)·H·(W − decoded)ᵀ, what it is with
	// RTN, and Σ W·H·Wᵀ. No row is above RTN: Fallbacks counts those that would
	// have been.
	OutputError, OutputRTN, OutputEnergy float64
	Fallbacks                            int64
}

// RelativeMSE is Error over Energy, 0 for all-zero weights.
func (s Stats) RelativeMSE() float64 {
	if s.Energy == 0 {
		return 0
	}
	return s.Error / s.Energy
}

// Add adds the sums of other weights.
func (s *Stats) Add(o Stats) {
	s.Elements += o.Elements
	s.Energy += o.Energy
	s.Error += o.Error
	s.OutputError += o.OutputError
	s.OutputRTN += o.OutputRTN
	s.OutputEnergy += o.OutputEnergy
	s.Fallbacks += o.Fallbacks
}

// Options of Encode.
type Options struct {
	Method     Method
	Importance []float32            // of every column; see Rows
	Feedback   *Feedback            // likewise
	Workers    int                  // 0: all cores
	Done       func(elements int64) // told of progress; must be safe for concurrent use
	Context    context.Context      // nil: context.Background()
}

// Encoded is a tensor in a codec's format, coded as its parts are written. The
// first part, the codes, is best written before the others, which it computes
// as well; otherwise everything is coded twice.
type Encoded struct {
	Codec Codec
	Src   checkpoint.Tensor
	Parts []checkpoint.Tensor // named PREFIX.weight, PREFIX.scales, PREFIX.biases
	Stats Stats               // complete once the first part has been written

	o     Options
	small [][]byte // the parts but the first, between the writing of the codes and theirs
}

// Encode describes t, a matrix or a stack of matrices, in the format of c.
// The parts are named after prefix.
func Encode(c Codec, t checkpoint.Tensor, prefix string, o Options) (*Encoded, error) {
	parts, err := c.Parts(t.DType(), t.Shape())
	if err != nil {
		return nil, fmt.Errorf("quant: tensor %q: %s: %w", t.Name(), c, err)
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	if o.Method == "" {
		o.Method = RTN
	}
	cols := t.Shape()[len(t.Shape())-1]
	if f := o.Feedback; o.Method.Calibrated() && (f == nil || f.cols != cols) || o.Importance != nil && len(o.Importance) != cols {
		return nil, fmt.Errorf("quant: tensor %q: method %s needs the calibration of %d columns", t.Name(), o.Method, cols)
	}
	e := &Encoded{Codec: c, Src: t, o: o}
	e.Parts = append(e.Parts, &lazyPart{e, prefix + "." + parts[0].Suffix, parts[0]})
	e.small = make([][]byte, len(parts)-1)
	for i, p := range parts[1:] {
		e.Parts = append(e.Parts, &smallPart{lazyPart: lazyPart{e, prefix + "." + p.Suffix, p}, data: &e.small[i]})
	}
	return e, nil
}

// lazyPart is the first part: codes that are computed while they are written.
type lazyPart struct {
	e    *Encoded
	name string
	part Part
}

func (p *lazyPart) Name() string            { return p.name }
func (p *lazyPart) DType() checkpoint.DType { return p.part.DType }
func (p *lazyPart) Shape() []int            { return p.part.Shape }

func (p *lazyPart) ReadFloat32([]float32, int) error {
	return fmt.Errorf("quant: tensor %q holds codes", p.name)
}

func (p *lazyPart) WriteTo(w io.Writer) (int64, error) {
	n, err := p.e.run(w, p.e.o.Done)
	for i, q := range p.e.Parts[1:] {
		if q.(*smallPart).written {
			p.e.small[i] = nil
		}
	}
	return n, err
}

// smallPart is one of the other parts. Its data are let go once written.
type smallPart struct {
	lazyPart
	data    *[]byte
	written bool
}

func (p *smallPart) WriteTo(w io.Writer) (int64, error) {
	if *p.data == nil {
		if _, err := p.e.run(io.Discard, nil); err != nil {
			return 0, err
		}
	}
	n, err := w.Write(*p.data)
	*p.data, p.written = nil, true
	return int64(n), err
}

// blockElements is about the number of weights that a worker takes at a time.
const blockElements = 1 << 16

// block is a run of rows on its way.
type block struct {
	out   []byte
	stats Stats
	err   error
	ready chan struct{}
}

// run codes all rows and writes the first part.
func (e *Encoded) run(w io.Writer, done func(elements int64)) (int64, error) {
	shape := e.Src.Shape()
	cols := shape[len(shape)-1]
	rows := checkpoint.NumElements(e.Src) / cols
	per := max(1, blockElements/cols)
	workers := e.o.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	switch {
	case e.o.Method.Calibrated():
		per = feedbackBlock(rows, cols, workers)
	case e.o.Importance != nil:
		per = max(lanes, per/lanes*lanes)
	}
	count := (rows + per - 1) / per
	workers = min(workers, count)
	for i, p := range e.Parts[1:] {
		e.small[i] = make([]byte, checkpoint.NumBytes(p))
	}
	ahead := 4 * workers
	blocks := make([]block, count)
	for i := range blocks {
		blocks[i].ready = make(chan struct{})
	}
	slots := make(chan struct{}, ahead)
	quit := make(chan struct{})
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			c := newEncoder(e, cols)
			for {
				select {
				case slots <- struct{}{}:
				case <-quit:
					return
				}
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				b := &blocks[i]
				b.err = c.block(b, i*per, min(per, rows-i*per))
				close(b.ready)
			}
		})
	}
	defer wg.Wait()
	defer close(quit)
	e.Stats = Stats{}
	var n int64
	for i := range blocks {
		b := &blocks[i]
		select {
		case <-b.ready:
		case <-e.o.Context.Done():
			return n, e.o.Context.Err()
		}
		if b.err != nil {
			return n, b.err
		}
		m, err := w.Write(b.out)
		n += int64(m)
		if err != nil {
			return n, err
		}
		e.Stats.Add(b.stats)
		if done != nil {
			done(b.stats.Elements)
		}
		b.out = nil
		<-slots
	}
	checkpoint.Release(e.Src)
	return n, nil
}

// encoder is the state of one worker.
type encoder struct {
	e       *Encoded
	cols    int
	w, back []float32
	raw     []uint16 // the whole tensor, if it is mapped bfloat16
}

func newEncoder(e *Encoded, cols int) *encoder {
	c := &encoder{e: e, cols: cols}
	if e.Src.DType() == checkpoint.BF16 {
		if b, ok := checkpoint.Raw(e.Src); ok {
			c.raw, _ = littleendian.View[uint16](b)
		}
	}
	return c
}

// block codes n rows from row first on.
func (c *encoder) block(b *block, first, n int) error {
	size := n * c.cols
	if cap(c.w) < size {
		c.w = make([]float32, size)
	}
	w := c.w[:size]
	if err := c.read(w, first*c.cols); err != nil {
		return err
	}
	if bits := kernel.MaxBits(w); bits >= 0x7f800000 {
		return notFinite(c.e.Src.Name(), w, first*c.cols)
	}
	rows := int64(checkpoint.NumElements(c.e.Src) / c.cols)
	dst := make([][]byte, len(c.e.Parts))
	for i, p := range c.e.Parts {
		each := checkpoint.NumBytes(p) / rows
		if i == 0 {
			b.out = make([]byte, int(each)*n)
			dst[i] = b.out
		} else {
			dst[i] = c.e.small[i-1][int(each)*first:][:int(each)*n]
		}
	}
	r := Rows{W: w, Cols: c.cols, DType: c.e.Src.DType(), Importance: c.e.o.Importance, Feedback: c.e.o.Feedback}
	m, measures := c.e.Codec.(measurer)
	b.stats = Stats{Elements: int64(size)}
	var err error
	if measures {
		err = m.encodeMeasured(dst, r, c.e.o.Method, &b.stats)
	} else {
		err = c.e.Codec.Encode(dst, r, c.e.o.Method)
	}
	if err != nil {
		return fmt.Errorf("quant: tensor %q: %w", c.e.Src.Name(), err)
	}
	for i := 0; i < size; i += c.cols {
		b.stats.Energy += float64(kernel.SumSquares(w[i : i+c.cols]))
	}
	if measures {
		return nil
	}
	if cap(c.back) < size {
		c.back = make([]float32, size)
	}
	back := c.back[:size]
	c.e.Codec.Decode(back, dst, c.cols, r.DType)
	kernel.Sub(back, w, back)
	for i := 0; i < size; i += c.cols {
		b.stats.Error += float64(kernel.SumSquares(back[i : i+c.cols]))
	}
	return nil
}

// measurer knows the error of its codes without decoding them from memory.
type measurer interface {
	encodeMeasured(dst [][]byte, r Rows, m Method, st *Stats) error
}

func (c *encoder) read(w []float32, off int) error {
	if c.raw != nil {
		return checkpoint.Guard(func() error {
			kernel.BF16ToF32(w, c.raw[off:off+len(w)])
			return nil
		})
	}
	return c.e.Src.ReadFloat32(w, off)
}

// notFinite names the first weight that is not a number one can store.
func notFinite(name string, w []float32, off int) error {
	for i, x := range w {
		switch {
		case x != x:
			return fmt.Errorf("quant: tensor %q: element %d is NaN (the checkpoint is damaged, or training diverged)", name, off+i)
		case math.IsInf(float64(x), 0):
			return fmt.Errorf("quant: tensor %q: element %d is infinite (the checkpoint is damaged, or training diverged)", name, off+i)
		}
	}
	return fmt.Errorf("quant: tensor %q changed while it was read", name)
}
