package pass

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
)

// blockElems is the number of elements converted at a time: with its three
// buffers a writer holds less than 1 MiB.
const blockElems = 1 << 16

// castWriter converts the bytes written to it and passes them on to w.
type castWriter struct {
	c       *CastConst
	w       io.Writer
	src     mil.DType
	size    int    // bytes of a source element
	carry   []byte // the head of an element split between two writes
	f       []float32
	h       []uint16
	out     []byte
	elems   int64 // converted so far
	written int64
}

func (w *castWriter) init() error {
	t := w.c.Src.Type()
	if !castable(t.DType) || w.c.To != mil.Float16 && w.c.To != mil.Float32 {
		return fmt.Errorf("pass: const %q: no conversion from %v to %v", w.c.Name, t.DType, w.c.To)
	}
	w.src, w.size = t.DType, t.DType.Bits()/8
	n := min(t.NumElements(), blockElems)
	w.f = make([]float32, n)
	w.h = make([]uint16, n)
	w.out = make([]byte, n*w.c.To.Bits()/8)
	return nil
}

// Write converts whole elements and keeps a partial one for the next call.
func (w *castWriter) Write(p []byte) (int, error) {
	n := len(p)
	if len(w.carry) > 0 {
		take := min(w.size-len(w.carry), len(p))
		w.carry = append(w.carry, p[:take]...)
		p = p[take:]
		if len(w.carry) < w.size {
			return n, nil
		}
		if err := w.block(w.carry); err != nil {
			return 0, err
		}
		w.carry = w.carry[:0]
	}
	for len(p) >= w.size {
		k := min(len(p)/w.size, len(w.f))
		if k == 0 {
			return 0, w.length(w.elems + int64(len(p)/w.size))
		}
		if err := w.block(p[:k*w.size]); err != nil {
			return 0, err
		}
		p = p[k*w.size:]
	}
	w.carry = append(w.carry, p...)
	return n, nil
}

func (w *castWriter) length(got int64) error {
	return fmt.Errorf("pass: const %q: the source gives %d elements, its type %v says %d",
		w.c.Name, got, w.c.Src.Type(), w.c.Src.Type().NumElements())
}

func (w *castWriter) finish() error {
	if len(w.carry) > 0 || w.elems != int64(w.c.Src.Type().NumElements()) {
		return w.length(w.elems)
	}
	return nil
}

// block converts whole elements, at most len(w.f).
func (w *castWriter) block(p []byte) error {
	n := len(p) / w.size
	f := w.f[:n]
	w.decode(f, p)
	if w.c.Factor != 1 {
		for i := range f {
			f[i] *= w.c.Factor
		}
	}
	if err := w.check(f); err != nil {
		return err
	}
	out := w.out[:n*w.c.To.Bits()/8]
	if w.c.To == mil.Float16 {
		h := w.h[:n]
		half.F32ToF16(h, f)
		for i, x := range h {
			binary.LittleEndian.PutUint16(out[2*i:], x)
		}
	} else {
		for i, x := range f {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(x))
		}
	}
	w.elems += int64(n)
	if w.elems > int64(w.c.Src.Type().NumElements()) {
		return w.length(w.elems)
	}
	m, err := w.w.Write(out)
	w.written += int64(m)
	return err
}

func (w *castWriter) decode(f []float32, p []byte) {
	switch w.src {
	case mil.Float16, mil.BFloat16:
		h := w.h[:len(f)]
		for i := range h {
			h[i] = binary.LittleEndian.Uint16(p[2*i:])
		}
		if w.src == mil.Float16 {
			half.F16ToF32(f, h)
		} else {
			half.BF16ToF32(f, h)
		}
	case mil.Float32:
		for i := range f {
			f[i] = math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))
		}
	case mil.Float64:
		for i := range f {
			f[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(p[8*i:])))
		}
	}
}

// check finds the first element that the target cannot hold.
func (w *castWriter) check(f []float32) error {
	limit := float32(math.MaxFloat32)
	if w.c.To == mil.Float16 {
		limit = FP16Max
	}
	for i, x := range f {
		if x <= limit && x >= -limit {
			continue
		}
		at := w.elems + int64(i)
		switch {
		case x != x:
			return fmt.Errorf("pass: const %q: element %d is NaN", w.c.Name, at)
		case math.IsInf(float64(x), 0):
			return fmt.Errorf("pass: const %q: element %d is infinite", w.c.Name, at)
		}
		return fmt.Errorf("pass: const %q: element %d is %g, beyond fp16's %d (scale the residual stream, or keep it in fp32)", w.c.Name, at, x, FP16Max)
	}
	return nil
}
