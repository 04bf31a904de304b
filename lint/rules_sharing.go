package lint

import (
	"crypto/sha256"
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// Sharing: bytes that are stored more often than once.

// sharedFrom is the size in bytes from which a constant in two packages is
// worth a word: packages cannot share weights.
const sharedFrom = 1 << 20

var sharingRules = []Rule{
	{ID: "duplicate-weights", Severity: Warning, Source: "apple/coremltools: docs-guides/source/multifunction-models.md",
		Statement: "functions share equal weights: one blob, however many use it",
		chunk:     duplicates},
	{ID: "duplicate-chunks", Severity: Info, Source: "apple/coremltools#1818",
		Statement: "chunks do not store the same large tensor",
		whole:     duplicatesBetween},
}

// content is what makes constants equal.
type content struct {
	hash  [sha256.Size]byte
	dtype mil.DType
	shape string
}

func (k *constant) content() content {
	t := k.c.Type()
	return content{k.hash, t.DType, fmt.Sprint(t.Shape)}
}

func duplicates(r *reporter, c *chunk) {
	first := map[content]*constant{}
	var again *constant
	n, bytes := 0, int64(0)
	for _, k := range c.constants {
		if !k.hashed {
			continue
		}
		if first[k.content()] == nil {
			first[k.content()] = k
			continue
		}
		if again == nil {
			again = k
		}
		n++
		bytes += k.c.Type().NumBytes()
	}
	if again != nil {
		other := first[again.content()].at
		r.addAt(again.at, "%d constants, %s, are stored again with equal contents: this one is as %q of %s (write equal constants once: they must share an offset)", n, megabytes(bytes), other.op, other.function)
	}
}

func duplicatesBetween(r *reporter, s *subject) {
	first := map[content]place{}
	for _, c := range s.chunks {
		for _, k := range c.constants {
			if !k.hashed || k.c.Type().NumBytes() < sharedFrom {
				continue
			}
			at, ok := first[k.content()]
			switch {
			case !ok:
				first[k.content()] = k.at
			case at.chunk != c.name:
				r.addAt(k.at, "%s of weights are also in %s, as %q: packages cannot share them (put both uses in one chunk, or accept the bytes)", megabytes(k.c.Type().NumBytes()), at.chunk, at.op)
			}
		}
	}
}
