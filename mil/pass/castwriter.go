package pass

import (
	"fmt"
	"io"

	"github.com/smelt-go/smelt/mil"
)

// blockElems is the number of elements converted at a time: with its buffers
// a writer holds less than 1 MiB.
const blockElems = 1 << 16

// castWriter converts the bytes written to it and passes them on to w.
type castWriter struct {
	c       *CastConst
	w       io.Writer
	src     mil.DType
	size    int    // bytes of a source element
	carry   []byte // the head of an element split between two writes
	f       floats
	out     []byte
	elems   int64 // converted so far
	written int64
}

func (w *castWriter) init() {
	t := w.c.Src.Type()
	w.src, w.size = t.DType, t.DType.Bits()/8
	w.out = make([]byte, min(t.NumElements(), blockElems)*w.c.To.Bits()/8)
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
		k := min(len(p)/w.size, len(w.out)/(w.c.To.Bits()/8))
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

// block converts whole elements, as many as fit in out at most.
func (w *castWriter) block(p []byte) error {
	n := len(p) / w.size
	out := w.out[:n*w.c.To.Bits()/8]
	if !w.c.convert(out, p, w.src, &w.f) {
		f := make([]float32, n)
		decode(f, p, w.src)
		return w.c.fault(f, w.elems)
	}
	w.elems += int64(n)
	if w.elems > int64(w.c.Src.Type().NumElements()) {
		return w.length(w.elems)
	}
	m, err := w.w.Write(out)
	w.written += int64(m)
	return err
}
