package conversion

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/diskspace"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/kernel"
)

// rowPiece is about how many elements of a table one goroutine quantizes at a
// time.
const rowPiece = 1 << 18

// writeRows quantizes a table row by row: prefix+"_q8.bin" holds int8, and
// prefix+"_scales.bin" the largest magnitude of each row in fp16. An element is
// int8·scale/127. It returns the largest magnitude of all.
func writeRows(ctx context.Context, prefix string, t checkpoint.Tensor) (float32, error) {
	defer checkpoint.Release(t)
	rows, width := t.Shape()[0], t.Shape()[1]
	q := &rowQuantizer{t: t, rows: rows, width: width, each: max(1, rowPiece/width)}
	err := create(prefix+codesSuffix, int64(rows)*int64(width), func(codes io.Writer) error {
		return create(prefix+scalesSuffix, 2*int64(rows), func(scales io.Writer) error { return q.write(ctx, codes, scales) })
	})
	return q.peak, err
}

// create fills a new file of the given size.
func create(path string, size int64, fill func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("conversion: %w", err)
	}
	diskspace.Reserve(f, size)
	err = fill(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("conversion: %s: %w", filepath.Base(path), err)
	}
	return nil
}

// rowQuantizer quantizes pieces of a table on all cores and writes them in
// order.
type rowQuantizer struct {
	t                 checkpoint.Tensor
	rows, width, each int
	peak              float32
}

// piece is what one goroutine works on: each rows from first on.
type piece struct {
	values        []float32
	codes, scales []byte
	n             int
	peak          float32
	err           error
}

func (q *rowQuantizer) write(ctx context.Context, codes, scales io.Writer) error {
	pieces := make([]piece, 2*runtime.GOMAXPROCS(0))
	for i := range pieces {
		pieces[i] = piece{values: make([]float32, q.each*q.width), codes: make([]byte, q.each*q.width), scales: make([]byte, 2*q.each)}
	}
	half := len(pieces) / 2
	fill := func(ps []piece, first int) (wait func()) {
		var wg sync.WaitGroup
		for i := range ps {
			at := first + i*q.each
			if ps[i].n = min(q.each, q.rows-at); ps[i].n <= 0 {
				ps[i].n = 0
				continue
			}
			wg.Go(func() { q.quantize(&ps[i], at) })
		}
		return wg.Wait
	}
	// One half is written while the other is filled.
	now, next := pieces[:half], pieces[half:]
	wait := fill(now, 0)
	for first := 0; first < q.rows; first += half * q.each {
		wait()
		wait = fill(next, first+half*q.each)
		for i := range now {
			p := &now[i]
			err := p.err
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				_, err = codes.Write(p.codes[:p.n*q.width])
			}
			if err == nil {
				_, err = scales.Write(p.scales[:2*p.n])
			}
			if err != nil {
				wait()
				return err
			}
			q.peak = max(q.peak, p.peak)
		}
		now, next = next, now
	}
	wait()
	return nil
}

// quantize fills a piece with rows from first on.
func (q *rowQuantizer) quantize(p *piece, first int) {
	values := p.values[:p.n*q.width]
	if p.err = q.t.ReadFloat32(values, first*q.width); p.err != nil {
		return
	}
	p.peak = 0
	for r := range p.n {
		row := values[r*q.width : (r+1)*q.width]
		scale, err := quantizeRow(p.codes[r*q.width:(r+1)*q.width], row)
		if err != nil {
			p.err = fmt.Errorf("tensor %q: row %d: %w", q.t.Name(), first+r, err)
			return
		}
		p.scales[2*r], p.scales[2*r+1] = byte(scale), byte(scale>>8)
		p.peak = max(p.peak, half.ToF32(scale))
	}
}

// quantizeRow fills out with the int8 codes of row and returns the fp16 scale
// they were made with, so that its rounding does not add to theirs.
func quantizeRow(out []byte, row []float32) (uint16, error) {
	bits := kernel.MaxBits(row)
	peak := math.Float32frombits(bits)
	if bits >= infinity {
		return 0, fmt.Errorf("an element is not finite (a damaged or diverged checkpoint?)")
	}
	scale := half.FromF32(peak)
	wide := half.ToF32(scale)
	if !(wide <= fp16Max) {
		return 0, fmt.Errorf("largest magnitude %g is beyond fp16's %d", peak, fp16Max)
	}
	clear(out)
	if wide == 0 {
		return scale, nil
	}
	// Adding and taking away 1.5·2²³ rounds to the nearest whole number, half to
	// even. A scale rounded down lets the largest element come out at 127.06; a
	// subnormal one may be far below it.
	const magic = 3 << 22
	inv := 127 / wide
	out = out[:len(row)]
	for i, x := range row {
		v := max(-127, min(127, float32(x*inv)))
		v = float32(v+magic) - magic
		out[i] = byte(int8(v))
	}
	return scale, nil
}
