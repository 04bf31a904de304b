package kernel

import "github.com/smelt-go/smelt/internal/half"

// unpackCodes extracts codes from number first on.
func unpackCodes(dst, packed []byte, bits, first int) {
	if bits == 8 {
		copy(dst, packed[first:])
		return
	}
	mask := byte(1)<<bits - 1
	at := first * bits
	for i := range dst {
		v := uint16(packed[at>>3])
		if at&7+bits > 8 {
			v |= uint16(packed[at>>3+1]) << 8
		}
		dst[i] = byte(v>>(at&7)) & mask
		at += bits
	}
}

// lookUp stores the entries that codes name: every step-th number of table.
func lookUp(dst []float32, packed []byte, bits, first int, table []float32, step int) {
	var buf [256]byte
	for len(dst) > 0 {
		n := min(len(dst), len(buf))
		unpackCodes(buf[:n], packed, bits, first)
		for i, c := range buf[:n] {
			dst[i] = table[int(c)*step]
		}
		dst, first = dst[n:], first+n
	}
}

// decodeRow is the specification of what a row of p is. table is the table
// of the row, step the distance of its entries, one room for a number.
func (p *Packed) decodeRow(dst []float32, row int, table []float32, step int, one []float32) {
	lookUp(dst, p.Codes, p.Bits, row/p.Vector*p.K, table, step)
	if p.blocks == 0 {
		p.round(dst)
		return
	}
	at := row / p.BlockRows * p.blocks
	number := func(v *Numbers, i int) float32 {
		v.Read(one, i)
		return one[0]
	}
	for b := range p.blocks {
		x := dst[b*p.Block:][:p.Block]
		if p.Offset.Len() > 0 {
			AddScalar(x, x, -number(&p.Offset, at+b))
		}
		MulScalar(x, x, number(&p.Scale, at+b))
		p.round(x)
		if p.Bias.Len() > 0 {
			AddScalar(x, x, number(&p.Bias, at+b))
			p.round(x)
		}
	}
}

func (p *Packed) round(x []float32) {
	switch p.Round {
	case RoundToF16:
		RoundF16(x)
	case RoundToBF16:
		for i, v := range x {
			x[i] = half.FromBF16(half.ToBF16(v))
		}
	}
}

// integers reads codes as integers. Whole bytes of 16 codes go through a
// decoder.
func (v *Numbers) integers(dst []float32, first int) {
	levels := integerLevels(v.Bits, v.Signed)
	f := formI8
	switch {
	case v.Bits == 4:
		f = formLUT4
	case v.Bits == 8 && !v.Signed:
		f = formU8
	case v.Bits != 8:
		f = formNone
	}
	n := body(len(dst))
	if run := cur.packed[f].decode; run != nil && n > 0 && first*v.Bits%8 == 0 {
		s := packedScratches.Get().(*packedScratch)
		s.one[0] = 1
		s.args = packedArgs{
			dst: &dst[0], w: &v.Codes[first*v.Bits/8], tab: &levels[0],
			par: &s.one[0], blocks: 1, steps: int64(n / lanes), stride: int64(2 * v.Bits),
		}
		run(s.args.pointer())
		s.release()
		dst, first = dst[n:], first+n
	}
	lookUp(dst, v.Codes, v.Bits, first, levels, 1)
}
