package decompress

import (
	"sync"

	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
)

// scaled is scale·(data − offset) with one scale and offset a block.
type scaled struct {
	data   source
	blocks blocks
	scale  *Tensor   // one number a block
	offset *Tensor   // nil for none
	half   bool      // results are fp16
	once   bool      // the difference is not rounded on its own
	codes  *packed   // data, if it is codes of at most 8 bits
	levels []float32 // their values

	// The decoded scales and offsets, for reads.
	decoded sync.Once
	scales  []float32
	offsets []float32
}

// prepare finds out whether data are codes.
func (s *scaled) prepare() {
	if p, ok := s.data.(packed); ok && p.bits <= 8 && !p.dtype.IsFloat() {
		s.codes, s.levels = &p, p.levels()
	}
}

func (s *scaled) read(dst []float32, first int) {
	s.decoded.Do(func() {
		s.scales = s.scale.All()
		if s.offset != nil {
			s.offsets = s.offset.All()
		}
	})
	if s.codes == nil {
		s.data.read(dst, first)
		s.blocks.runs(first, len(dst), func(from, count, block int) {
			s.block(dst[from:from+count], dst[from:from+count], block)
		})
		return
	}
	var table [256]float32
	have := -1
	levels := table[:len(s.levels)]
	s.blocks.runs(first, len(dst), func(from, count, block int) {
		run, at := dst[from:from+count], first+from
		// A long run of codes is cheaper through a table of what each code
		// becomes; the numbers are the same.
		if count >= len(levels) || have == block {
			if have != block {
				s.block(levels, s.levels, block)
				have = block
			}
			s.lookup(run, at, levels)
			return
		}
		s.lookup(run, at, s.levels)
		s.block(run, run, block)
	})
}

func (s *scaled) lookup(dst []float32, first int, table []float32) {
	if s.codes.bits == 8 {
		for i, c := range s.codes.data[first : first+len(dst)] {
			dst[i] = table[c]
		}
		return
	}
	var buf [chunk]byte
	for len(dst) > 0 {
		n := min(len(dst), chunk)
		s.codes.codes(buf[:n], first)
		for i, c := range buf[:n] {
			dst[i] = table[c]
		}
		dst, first = dst[n:], first+n
	}
}

// block applies the scale and offset of a block.
func (s *scaled) block(dst, src []float32, block int) {
	scale := s.scales[block]
	if s.offsets == nil {
		for i, x := range src {
			dst[i] = scale * x
		}
	} else {
		off := s.offsets[block]
		for i, x := range src {
			dst[i] = x - off
		}
		if s.half && !s.once {
			half.RoundF16(dst)
		}
		for i, x := range dst {
			dst[i] = scale * x
		}
	}
	if s.half {
		half.RoundF16(dst)
	}
}

// vector is a list of numbers.
type vector []float32

func (v vector) read(dst []float32, first int) { copy(dst, v[first:]) }

func vectorOf(v []float32) *Tensor {
	return &Tensor{mil.T(mil.Float32, len(v)), vector(v)}
}
