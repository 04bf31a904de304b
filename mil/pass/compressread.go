package pass

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/smelt-go/smelt/internal/littleendian"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/quant"
)

// encode computes the data of all parts.
func (c *compressed) encode() error {
	read, err := halves(c.src)
	if err != nil {
		return err
	}
	data, stats, err := c.form.Encode(read, quant.FormOptions{})
	if err != nil {
		return err
	}
	c.report.Stats = stats
	for i, p := range c.parts {
		p.data = data[i]
	}
	return nil
}

// halves reads the fp16 elements of a constant, any run of them at any time.
func halves(c mil.Const) (func(dst []uint16, first int) error, error) {
	ranges, ok := mil.Ranges(c)
	if !ok {
		// A source of which no parts can be read.
		var all bytes.Buffer
		if _, err := c.WriteTo(&all); err != nil {
			return nil, err
		}
		ranges = func(dst []byte, off int64) error { copy(dst, all.Bytes()[off:]); return nil }
	}
	var spare sync.Pool
	return func(dst []uint16, first int) error {
		if raw, ok := littleendian.Bytes(dst); ok {
			return ranges(raw, int64(2*first))
		}
		b, _ := spare.Get().([]byte)
		if len(b) < 2*len(dst) {
			b = make([]byte, 2*len(dst))
		}
		defer spare.Put(b)
		if err := ranges(b[:2*len(dst)], int64(2*first)); err != nil {
			return err
		}
		for i := range dst {
			dst[i] = binary.LittleEndian.Uint16(b[2*i:])
		}
		return nil
	}, nil
}
