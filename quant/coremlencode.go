package quant

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/smelt-go/smelt/internal/bitpack"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/kernel"
)

// FormOptions says what Form.Encode goes by.
type FormOptions struct {
	// Importance weights the squared error of every column; nil weights all
	// alike.
	Importance []float32
	// Feedback is what methods feedback and best need, with groups of
	// Form.FeedbackGroup columns.
	Feedback *Feedback
	Workers  int // 0: all cores
}

// Encode codes a matrix. read fills dst with fp16 elements from the given one
// on, in row-major order; it must be safe for concurrent use. The result is the
// data of the form's constants. Memory is that of the codes (a byte each while
// some weights are left out) and, with a table for the whole matrix, a counter
// a value.
//
// Bytes do not depend on the number of workers.
func (m *Form) Encode(read func(dst []uint16, first int) error, o FormOptions) ([][]byte, Stats, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Importance != nil && len(o.Importance) != m.Cols {
		return nil, Stats{}, fmt.Errorf("quant: importance of %d columns for a matrix of %d", len(o.Importance), m.Cols)
	}
	finite := func(dst []uint16, first int) error {
		if err := read(dst, first); err != nil || kernel.MaxBits16(dst) < 0x7c00 {
			return err
		}
		i := slices.IndexFunc(dst, func(b uint16) bool { return b&0x7c00 == 0x7c00 })
		return fmt.Errorf("quant: element %d is %v", first+i, half.ToF32(dst[i]))
	}
	e := &formEncoder{Form: m, read: finite, o: o, data: make([][]byte, len(m.Constants))}
	for i, c := range m.Constants {
		e.data[i] = make([]byte, c.Bytes())
	}
	var err error
	switch {
	case m.Format.Method.Calibrated():
		if f := o.Feedback; f == nil || f.cols != m.Cols || f.group != m.FeedbackGroup() && m.FeedbackGroup() != 0 {
			return nil, Stats{}, fmt.Errorf("quant: method %s needs the calibration of this matrix", m.Format.Method)
		}
		if m.Format.Codec == "palette" {
			err = e.palettesFeedback()
		} else {
			err = e.linearFeedback()
		}
	case m.Format.Codec == "palette" && m.Format.vector() > 1:
		err = e.vectors()
	case m.Format.Codec == "palette":
		err = e.palettes()
	case m.Format.Codec == "linear":
		err = e.linear()
	default:
		err = e.plain()
	}
	return e.data, e.stats, err
}

// formEncoder is one run of Encode.
type formEncoder struct {
	*Form
	read  func(dst []uint16, first int) error
	o     FormOptions
	data  [][]byte
	stats Stats

	mask *mask // nil: everything is stored
}

// each runs a worker's function for units 0 to n−1 and adds up their stats in
// the order of units.
func (e *formEncoder) each(n int, worker func() func(int, *Stats) error) error {
	stats, errs := make([]Stats, n), make([]error, n)
	var next atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range min(n, e.o.Workers) {
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
		e.stats.Add(stats[i])
	}
	return nil
}

// pieceElements is about the number of elements that a worker reads at a time.
const pieceElements = 1 << 16

// pieces cuts rows into runs of whole rows whose elements are a multiple of 8,
// where there are such.
func (e *formEncoder) pieces(rows int) (each, count int) {
	each = max(1, pieceElements/e.Cols)
	for each < rows && each*e.Cols%8 != 0 {
		each++
	}
	each = min(each, rows)
	return each, (rows + each - 1) / each
}

func putHalf(dst []byte, i int, b uint16) { binary.LittleEndian.PutUint16(dst[2*i:], b) }

// putCode stores code i of a stream of codes that was zero.
func putCode(dst []byte, i int, code byte, bits int) {
	at := i * bits
	v := uint(code) & (1<<bits - 1) << (at % 8)
	dst[at/8] |= byte(v)
	if v > 0xff {
		dst[at/8+1] |= byte(v >> 8)
	}
}

// packAll packs codes, one a byte, whose higher bits are ignored.
func packAll(dst, codes []byte, bits int) {
	if bits == 8 {
		copy(dst, codes)
		return
	}
	for i, c := range codes {
		codes[i] = c & (1<<bits - 1)
	}
	n := len(codes) &^ 7
	bitpack.Pack(dst, codes[:n], bits)
	for i := n; i < len(codes); i++ {
		putCode(dst, i, codes[i], bits)
	}
}

func growFloat(b []float32, n int) []float32 {
	if cap(b) < n {
		return make([]float32, n)
	}
	return b[:n]
}

func growHalf(b []uint16, n int) []uint16 {
	if cap(b) < n {
		return make([]uint16, n)
	}
	return b[:n]
}

// linear codes with scales.
func (e *formEncoder) linear() error {
	l := e.Format.Linear()
	if err := e.leaveOut(); err != nil {
		return err
	}
	at := 0 // of the codes' constant
	if e.mask != nil {
		e.data[0], at = e.mask.bits, 1
	}
	scale := e.data[at+1]
	offset := []byte(nil)
	codes := make([]byte, e.Rows*e.Cols)
	if l.HasOffset() {
		offset = make([]byte, len(scale)/2)
	}
	rows, count := e.pieces(e.Rows)
	if l.Granularity == PerTensor {
		rows, count = e.Rows, 1
	}
	perRow := len(scale) / 2 / e.Rows // 0 if all share one
	err := e.each(count, func() func(int, *Stats) error {
		var w []uint16
		return func(i int, s *Stats) error {
			first, n := i*rows, min(rows, e.Rows-i*rows)
			w = growHalf(w, n*e.Cols)
			if err := e.read(w, first*e.Cols); err != nil {
				return err
			}
			lost := e.mask.clear(w, first*e.Cols, s)
			q, err := l.Quantize(w, n, e.Cols, e.Format.Method)
			if err != nil {
				return err
			}
			q.Stats.Elements -= lost
			s.Add(q.Stats)
			for j, x := range q.Codes {
				codes[first*e.Cols+j] = byte(x)
			}
			for j, x := range q.Scale {
				putHalf(scale, first*perRow+j, x)
			}
			for j, x := range q.Offset {
				offset[first*perRow+j] = byte(x)
			}
			return nil
		}
	})
	if err != nil {
		return err
	}
	packAll(e.data[at], e.mask.gather(codes), l.Bits)
	if offset != nil {
		packAll(e.data[at+2], offset, l.Bits)
	}
	return nil
}

// plain stores what is not left out as it is.
func (e *formEncoder) plain() error {
	if err := e.leaveOut(); err != nil {
		return err
	}
	e.data[0] = e.mask.bits
	rows, count := e.pieces(e.Rows)
	return e.each(count, func() func(int, *Stats) error {
		var w []uint16
		return func(i int, s *Stats) error {
			first, n := i*rows, min(rows, e.Rows-i*rows)
			w = growHalf(w, n*e.Cols)
			if err := e.read(w, first*e.Cols); err != nil {
				return err
			}
			e.mask.clear(w, first*e.Cols, s)
			at := e.mask.before[first]
			for j, b := range w {
				if e.mask.has(first*e.Cols + j) {
					x := float64(half.ToF32(b))
					s.Elements++
					s.Energy += float64(x * x)
					putHalf(e.data[1], at, b)
					at++
				}
			}
			return nil
		}
	})
}
