package chunking

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Range is the half-open range of layers [First, Last) of a chunk.
type Range struct{ First, Last int }

// Sizes are the bytes of what a chunk may hold, at the precision of the file.
type Sizes struct {
	Layers []int64
	First  int64 // what the first chunk adds (an in-graph embedding table)
	Last   int64 // what the last chunk adds (final norm and head)
	// Tied is set if First and Last are one table, stored once where both
	// fall into one chunk.
	Tied bool
}

// bytes is the size of a chunk.
func (s Sizes) bytes(r Range) int64 {
	var n int64
	for _, b := range s.Layers[r.First:r.Last] {
		n += b
	}
	first, last := r.First == 0, r.Last == len(s.Layers)
	if first {
		n += s.First
	}
	if last && !(first && s.Tied && s.First > 0) {
		n += s.Last
	}
	return n
}

// Bytes are the sizes of all chunks of a cut.
func (s Sizes) Bytes(cut []Range) []int64 {
	out := make([]int64, len(cut))
	for i, r := range cut {
		out[i] = s.bytes(r)
	}
	return out
}

// ParseRanges reads "0-8,8-25,25-35": half-open ranges that cover all layers
// in order.
func ParseRanges(s string, layers int) ([]Range, error) {
	var out []Range
	next := 0
	for part := range strings.SplitSeq(s, ",") {
		a, b, ok := strings.Cut(strings.TrimSpace(part), "-")
		first, err1 := strconv.Atoi(a)
		last, err2 := strconv.Atoi(b)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("chunking: layers %q: want half-open ranges such as 0-8,8-16", part)
		}
		if first != next || last <= first || last > layers {
			return nil, fmt.Errorf("chunking: layers %q: the ranges must cover 0-%d in order; expected one that starts at %d", part, layers, next)
		}
		next = last
		out = append(out, Range{first, last})
	}
	if next != layers {
		return nil, fmt.Errorf("chunking: layers %q cover %d of %d layers", s, next, layers)
	}
	return out, nil
}

// CutInto splits the layers into n chunks so that the largest is as small as
// possible. Where several cuts are equal in that, later chunks are the smaller
// ones: [3 2] of five equal layers.
func CutInto(n int, s Sizes) ([]Range, error) {
	layers := len(s.Layers)
	if n < 1 || n > layers {
		return nil, fmt.Errorf("chunking: %d chunks: the model has %d layers, one chunk needs at least one", n, layers)
	}
	// best[k][i] is the smallest possible maximum over k chunks of layers [0,i).
	const inf = int64(1) << 62
	best := make([][]int64, n+1)
	from := make([][]int, n+1)
	for k := range best {
		best[k], from[k] = make([]int64, layers+1), make([]int, layers+1)
		for i := range best[k] {
			best[k][i] = inf
		}
	}
	best[0][0] = 0
	for k := 1; k <= n; k++ {
		for i := k; i <= layers; i++ {
			for j := k - 1; j < i; j++ {
				if v := max(best[k-1][j], s.bytes(Range{j, i})); v <= best[k][i] {
					best[k][i], from[k][i] = v, j
				}
			}
		}
	}
	out := make([]Range, n)
	for k, i := n, layers; k > 0; k-- {
		out[k-1] = Range{from[k][i], i}
		i = from[k][i]
	}
	return out, nil
}

// CutUnder splits the layers into the fewest chunks of at most limit bytes
// each, balanced.
func CutUnder(limit int64, s Sizes) ([]Range, error) {
	var worst int64
	for i := range s.Layers {
		worst = max(worst, s.bytes(Range{i, i + 1}))
	}
	if worst > limit {
		return nil, fmt.Errorf("chunking: no cut has chunks of at most %d bytes: the largest single layer, with what must go along, takes %d", limit, worst)
	}
	for n := 1; ; n++ { // a layer a chunk fits
		cut, err := CutInto(n, s)
		if err != nil || slices.Max(s.Bytes(cut)) <= limit {
			return cut, err
		}
	}
}
