package pass

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/littleendian"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/quant"
)

// each runs a worker's function for units 0 to n−1 on all cores and adds up
// their stats in the order of units.
func (c *compressed) each(n int, worker func() func(int, *quant.Stats) error) error {
	stats := make([]quant.Stats, n)
	var next atomic.Int64
	var failed atomic.Bool
	errs := make([]error, n)
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			f := worker()
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if errs[i] = f(i, &stats[i]); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	for i := range stats {
		if errs[i] != nil {
			return errs[i]
		}
		c.report.Stats.Add(stats[i])
	}
	return nil
}

// readElements is the number of elements that read passes on at a time.
const readElements = 1 << 16

// reader is a worker's buffer.
type reader struct {
	raw []byte
	w   []uint16
}

// read passes the fp16 elements of rows to f, with the position of the first.
func (c *compressed) read(row, rows int, buf *reader, f func(w []uint16, off int) error) error {
	first, left := row*c.cols, rows*c.cols
	ranges, ok := mil.Ranges(c.src)
	if !ok {
		b, err := c.all()
		if err != nil {
			return err
		}
		ranges = func(dst []byte, off int64) error { copy(dst, b[off:]); return nil }
	}
	if buf.raw == nil {
		buf.raw = make([]byte, 2*min(readElements, left))
	}
	for left > 0 {
		raw := buf.raw[:min(len(buf.raw), 2*left)]
		if err := ranges(raw, int64(2*first)); err != nil {
			return err
		}
		w, ok := littleendian.View[uint16](raw)
		if !ok {
			w = buf.w[:0]
			for i := 0; i < len(raw); i += 2 {
				w = append(w, binary.LittleEndian.Uint16(raw[i:]))
			}
			buf.w = w
		}
		if err := f(w, first); err != nil {
			return err
		}
		first, left = first+len(w), left-len(w)
	}
	return nil
}

// all reads a source of which no parts can be read.
func (c *compressed) all() ([]byte, error) {
	var b bytes.Buffer
	_, err := c.src.WriteTo(&b)
	return b.Bytes(), err
}

// energy counts elements and their squares.
func energy(s *quant.Stats, w []uint16) {
	s.Elements += int64(len(w))
	for _, b := range w {
		x := float64(half.ToF32(b))
		s.Energy += float64(x * x)
	}
}
