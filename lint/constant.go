package lint

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/smelt-go/smelt/mil"
)

// constant is one distinct constant of a chunk and what a scan found in it.
type constant struct {
	c  mil.Const
	at place // first use

	nan, posInf, negInf int
	saturated           int     // elements at ±65504, the end of fp16
	beyond              float64 // the largest finite fp32 magnitude past it, 0 if none
	hash                [sha256.Size]byte
	hashed              bool
}

// hashFrom is the size in bytes from which constants are compared with each
// other: smaller ones are immediate values or not worth a word.
const hashFrom = 4096

// maxHalf is the largest finite fp16.
const maxHalf = 65504

// scan reads every constant once.
func (c *chunk) scan() error {
	for _, k := range c.constants {
		t := k.c.Type()
		if t.DType == mil.String || t.NumElements() < 0 {
			continue
		}
		data, err := mil.ConstBytes(k.c)
		if err != nil {
			return err
		}
		switch t.DType {
		case mil.Float16:
			k.scanHalf(data)
		case mil.Float32:
			k.scanFloat(data)
		}
		if len(data) >= hashFrom {
			k.hash, k.hashed = sha256.Sum256(data), true
		}
	}
	return nil
}

func (k *constant) scanHalf(data []byte) {
	for ; len(data) >= 2; data = data[2:] {
		bits := binary.LittleEndian.Uint16(data)
		if bits&0x7fff < 0x7bff {
			continue
		}
		switch {
		case bits&0x7fff == 0x7bff:
			k.saturated++
		case bits&0x3ff != 0:
			k.nan++
		case bits>>15 == 1:
			k.negInf++
		default:
			k.posInf++
		}
	}
}

func (k *constant) scanFloat(data []byte) {
	for ; len(data) >= 4; data = data[4:] {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
		switch {
		case math.IsNaN(x):
			k.nan++
		case math.IsInf(x, 1):
			k.posInf++
		case math.IsInf(x, -1):
			k.negInf++
		case math.Abs(x) > maxHalf:
			k.beyond = max(k.beyond, math.Abs(x))
		}
	}
}
