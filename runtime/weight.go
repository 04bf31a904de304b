package runtime

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/smelt-go/smelt/internal/decompress"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// weight is a constant matrix of n rows of k elements as it lies in memory.
// It is never decoded as a whole.
type weight struct {
	n, k int
	f16  []uint16
	f32  []float32
	// packed is codes that products read where they lie.
	packed *kernel.Packed
	// rows decodes all else that is compressed, and constants that are not in
	// memory.
	rows *decompress.Tensor
}

// weight returns the matrix behind v, axis 0 its rows; nil if v is not a
// constant that products can read where it lies.
func (l *lowering) weight(v *mil.Value) *weight {
	if v == nil {
		return nil
	}
	t, ok := v.Tensor()
	if !ok || t.Rank() < 2 || t.NumElements() <= 0 {
		return nil
	}
	w := &weight{n: t.Shape[0], k: t.NumElements() / t.Shape[0]}
	if w.inPlace(v.Const, t) {
		return w
	}
	if !t.DType.IsFloat() || v.Const == nil && (v.Op == nil || !isConstexpr(v.Op)) {
		return nil
	}
	if t.NumElements() < tableMin {
		s, err := l.slot(v)
		if err != nil {
			return nil
		}
		w.f32 = l.code.consts[s].F
		return w
	}
	rows, err := l.decoder(v)
	if err != nil {
		return nil
	}
	if w.packed = l.matrix(rows); w.packed == nil {
		w.rows = rows
	}
	return w
}

// matrix returns the kernels' form of a compressed matrix, nil if there is
// none. Equal ones are shared by the program's functions.
func (l *lowering) matrix(rows *decompress.Tensor) *kernel.Packed {
	cc := l.prog.consts
	cc.mu.Lock()
	defer cc.mu.Unlock()
	m, ok := cc.matrices[rows]
	if !ok {
		m = rows.Matrix()
		cc.matrices[rows] = m
	}
	return m
}

// inPlace points w at the elements of a plain constant.
func (w *weight) inPlace(c mil.Const, t mil.TensorType) bool {
	raw, ok := c.(mil.RawConst)
	if !ok {
		return false
	}
	b := raw.Raw()
	if int64(len(b)) < t.NumBytes() {
		return false
	}
	switch t.DType {
	case mil.Float16:
		w.f16 = viewOf[uint16](b, w.n*w.k)
	case mil.Float32:
		w.f32 = viewOf[float32](b, w.n*w.k)
	}
	return w.f16 != nil || w.f32 != nil
}

// viewOf reads packed little-endian elements in place; nil if the machine
// cannot.
func viewOf[T uint16 | float32](b []byte, n int) []T {
	var z T
	p := unsafe.Pointer(unsafe.SliceData(b))
	if cpu.IsBigEndian || uintptr(p)%unsafe.Sizeof(z) != 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
}

// mulRows computes columns j0 to j1 of dst = x·wᵀ for t rows of x.
func (w *weight) mulRows(dst, x []float32, t, j0, j1 int, scratch *[]float32) {
	out, n, k := dst[j0:], j1-j0, w.k
	switch {
	case w.f16 != nil:
		kernel.MulF16(out, w.n, x, k, t, w.f16[j0*k:j1*k], k, n, k)
	case w.f32 != nil:
		kernel.MulF32(out, w.n, x, k, t, w.f32[j0*k:j1*k], k, n, k)
	case w.packed != nil:
		w.packed.Mul(out, w.n, x, k, t, j0, n)
	default:
		kernel.MulF32(out, w.n, x, k, t, w.decode(j0, n, scratch), k, n, k)
	}
}

// mulLeft is mulRows with packed rows as x.
func (w *weight) mulLeft(dst []float32, l *kernel.Left, j0, j1 int, scratch *[]float32) {
	out, n, k := dst[j0:], j1-j0, w.k
	switch {
	case w.f32 != nil:
		l.MulF32(out, w.n, w.f32[j0*k:j1*k], k, n)
	case w.packed != nil:
		w.packed.MulLeft(out, w.n, l, j0, n)
	default:
		l.MulF32(out, w.n, w.decode(j0, n, scratch), k, n)
	}
}

// decode decodes n rows into scratch.
func (w *weight) decode(from, n int, scratch *[]float32) []float32 {
	rows := grown(scratch, n*w.k)
	w.rows.Rows(rows, from, n)
	return rows
}
