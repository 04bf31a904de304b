package pass

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/littleendian"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/quant"
)

// encode computes the data of all parts.
func (c *compressed) encode() error {
	data, stats, err := c.code()
	if err != nil {
		return err
	}
	c.report.Stats = stats
	for i, p := range c.parts {
		p.data = data[i]
	}
	return nil
}

// code finds the data of the form's constants.
func (c *compressed) code() ([][]byte, quant.Stats, error) {
	if c.coded == nil {
		read, err := halves(c.src)
		if err != nil {
			return nil, quant.Stats{}, err
		}
		return c.form.Encode(read, quant.FormOptions{})
	}
	data, err := c.coded.Load()
	if err != nil {
		return nil, quant.Stats{}, err
	}
	if factor := factorOf(c.src); factor != 1 {
		err = c.scale(data, factor)
	}
	return data, c.coded.Stats, err
}

// factorOf is what casts multiply the tensor behind a constant by.
func factorOf(c mil.Const) float32 {
	f := float32(1)
	for {
		k, ok := c.(*CastConst)
		if !ok {
			return f
		}
		f *= k.Factor
		c = k.Src
	}
}

// scale multiplies what codes stand for: the last constant of fp16 multiplies all
// of them.
func (c *compressed) scale(data [][]byte, factor float32) error {
	for i := len(data) - 1; i >= 0; i-- {
		if c.parts[i].t.DType != mil.Float16 {
			continue
		}
		for b := data[i]; len(b) > 0; b = b[2:] {
			x := half.FromF32(factor * half.ToF32(binary.LittleEndian.Uint16(b)))
			if x&0x7c00 == 0x7c00 {
				return fmt.Errorf("scaled by %g, codes leave the range of fp16", factor)
			}
			binary.LittleEndian.PutUint16(b, x)
		}
		return nil
	}
	return fmt.Errorf("no constant scales the codes")
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
		p, _ := spare.Get().(*[]byte)
		if p == nil || len(*p) < 2*len(dst) {
			wide := make([]byte, 2*len(dst))
			p = &wide
		}
		defer spare.Put(p)
		b := *p
		if err := ranges(b[:2*len(dst)], int64(2*first)); err != nil {
			return err
		}
		for i := range dst {
			dst[i] = binary.LittleEndian.Uint16(b[2*i:])
		}
		return nil
	}, nil
}
