package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/half"
)

// int8Rows is a table of embeddings with rows of int8: element = int8·scale/127,
// with an fp16 scale a row. Rows are read as they are looked up.
type int8Rows struct {
	name          string
	codes, scales io.ReaderAt
	rows, width   int
}

var _ checkpoint.Tensor = (*int8Rows)(nil)

// openRows opens the table [rows, width] in two raw files.
func (e *Engine) openRows(codes, scales string, rows, width int) (checkpoint.Tensor, error) {
	t := &int8Rows{name: codes, rows: rows, width: width}
	for _, x := range []struct {
		file string
		size int64
		to   *io.ReaderAt
		what string
	}{{codes, int64(rows) * int64(width), &t.codes, "rows of int8"}, {scales, 2 * int64(rows), &t.scales, "fp16 scales"}} {
		path := filepath.Join(e.dir, x.file)
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
		e.closers = append(e.closers, f.Close)
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
		if info.Size() != x.size {
			return nil, fmt.Errorf("engine: %s has %d bytes, %s of [%d %d] take %d (copied in part, or of another model?)", path, info.Size(), x.what, rows, width, x.size)
		}
		*x.to = f
	}
	return t, nil
}

func (t *int8Rows) Name() string            { return t.name }
func (t *int8Rows) DType() checkpoint.DType { return checkpoint.F32 }
func (t *int8Rows) Shape() []int            { return []int{t.rows, t.width} }

// ReadFloat32 fills dst with elements [off, off+len(dst)).
func (t *int8Rows) ReadFloat32(dst []float32, off int) error {
	if off < 0 || off+len(dst) > t.rows*t.width {
		return fmt.Errorf("engine: %s: elements [%d, %d) of %d", t.name, off, off+len(dst), t.rows*t.width)
	}
	raw := make([]byte, t.width)
	for len(dst) > 0 {
		row, at := off/t.width, off%t.width
		n := min(t.width-at, len(dst))
		var s [2]byte
		if _, err := t.scales.ReadAt(s[:], 2*int64(row)); err != nil {
			return fmt.Errorf("engine: %s: scale of row %d: %w", t.name, row, err)
		}
		if _, err := t.codes.ReadAt(raw[:n], int64(off)); err != nil {
			return fmt.Errorf("engine: %s: row %d: %w", t.name, row, err)
		}
		scale := half.ToF32(binary.LittleEndian.Uint16(s[:]))
		if !(scale >= 0 && scale <= 65504) {
			return fmt.Errorf("engine: %s: the scale of row %d is %g", t.name, row, scale)
		}
		for i, q := range raw[:n] {
			dst[i] = float32(int8(q)) * scale / 127
		}
		dst, off = dst[n:], off+n
	}
	return nil
}

// WriteTo would write elements; a table of rows is only looked up.
func (t *int8Rows) WriteTo(io.Writer) (int64, error) {
	return 0, errors.New("engine: a table of int8 rows is only read")
}
