package tokenizer

import "sync"

// Classes of a code point, as the reference implementation sees them. They
// come from tables of this package (unicode_tables.go), not from package
// unicode, because a vocabulary's ids must not change with the Go version.
const (
	classLetter  uint8 = 1 << iota // \p{L} of a pattern
	classNumber                    // \p{N} of a pattern
	classMark                      // \p{M} of a pattern
	classSpace                     // White_Space
	classNumeric                   // numeric, as the Digits splitter has it
	classWord                      // \w, as added tokens with single_word have it
	classRecent                    // assigned after Unicode 9: untouched by normalization
)

// classPages maps a code point's high bits to its page of 256 classes; equal
// pages are shared, which keeps the table near 40 KiB.
var classPages = sync.OnceValue(func() *[0x1100]*[256]uint8 {
	flat := make([]uint8, 0x110000)
	mark := func(ranges []runeRange, bit uint8) {
		for _, r := range ranges {
			for c := r.lo; c <= r.hi; c++ {
				flat[c] |= bit
			}
		}
	}
	mark(letterRanges, classLetter)
	mark(numberRanges, classNumber)
	mark(markRanges, classMark)
	mark(spaceRanges, classSpace)
	mark(numericRanges, classNumeric)
	mark(wordRanges, classWord)
	mark(recentRanges, classRecent)

	var pages [0x1100]*[256]uint8
	distinct := map[[256]uint8]*[256]uint8{}
	for i := range pages {
		p := [256]uint8(flat[i<<8:])
		if distinct[p] == nil {
			distinct[p] = &p
		}
		pages[i] = distinct[p]
	}
	return &pages
})

type runeRange struct{ lo, hi rune }

// classOf returns the classes of r, which must be a valid code point.
func classOf(r rune) uint8 {
	return classPages()[uint32(r)>>8][uint8(r)]
}
