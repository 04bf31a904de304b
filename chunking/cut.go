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
	// Whole are layers that must stay together; zero: none.
	Whole Range
}

// Limits of a chunk; 0 means none.
type Limits struct {
	Bytes  int64
	Layers int
}

// splits reports whether a cut before layer at tears the range apart.
func (r Range) splits(at int) bool { return r.First < at && at < r.Last }

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
	cut := cutInto(n, s, layers)
	if cut == nil {
		return nil, fmt.Errorf("chunking: %d chunks: layers %d to %d must stay in one chunk, which leaves too few places to cut", n, s.Whole.First, s.Whole.Last-1)
	}
	return cut, nil
}

// cutInto is CutInto with at most most layers a chunk; nil if there is no
// such cut.
func cutInto(n int, s Sizes, most int) []Range {
	layers := len(s.Layers)
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
			if s.Whole.splits(i) {
				continue
			}
			for j := max(k-1, i-most); j < i; j++ {
				if best[k-1][j] == inf {
					continue
				}
				if v := max(best[k-1][j], s.bytes(Range{j, i})); v <= best[k][i] {
					best[k][i], from[k][i] = v, j
				}
			}
		}
	}
	if best[n][layers] == inf {
		return nil
	}
	out := make([]Range, n)
	for k, i := n, layers; k > 0; k-- {
		out[k-1] = Range{from[k][i], i}
		i = from[k][i]
	}
	return out
}

// CutUnder splits the layers into the fewest chunks within the limits,
// balanced by bytes.
func CutUnder(l Limits, s Sizes) ([]Range, error) {
	most := len(s.Layers)
	if l.Layers > 0 {
		most = min(most, l.Layers)
	}
	for n := 1; n <= len(s.Layers); n++ {
		if cut := cutInto(n, s, most); cut != nil && (l.Bytes <= 0 || slices.Max(s.Bytes(cut)) <= l.Bytes) {
			return cut, nil
		}
	}
	whole := s.Whole.Last - s.Whole.First
	if whole > most {
		return nil, fmt.Errorf("chunking: no cut has chunks of at most %d layers: layers %d to %d, which must stay together, are %d", most, s.Whole.First, s.Whole.Last-1, whole)
	}
	var worst int64
	for i := range s.Layers {
		r := Range{i, i + 1}
		if whole > 1 && i >= s.Whole.First && i < s.Whole.Last {
			r = s.Whole
		}
		worst = max(worst, s.bytes(r))
	}
	if whole > 1 {
		return nil, fmt.Errorf("chunking: no cut has chunks of at most %d bytes: the largest single layer, or layers %d to %d, which must stay together, with what must go along, take %d", l.Bytes, s.Whole.First, s.Whole.Last-1, worst)
	}
	return nil, fmt.Errorf("chunking: no cut has chunks of at most %d bytes: the largest single layer, with what must go along, takes %d", l.Bytes, worst)
}
