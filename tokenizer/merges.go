package tokenizer

// merge is what becomes of two neighbouring symbols: the lower the rank, the
// earlier it happens.
type merge struct{ rank, id int32 }

// mergeTable maps pairs of ids to merges. It is an open-addressing table
// because it is the inner loop of everything: half a million pairs for Gemma,
// looked up about three times for each character. What is looked at in any
// order is kept small: a slot has bits of its pair's hash, and the pair itself
// is in a list.
type mergeTable struct {
	slots  []mergeSlot
	merges []pairMerge
	shift  uint
}

type mergeSlot struct {
	tag  uint32
	next int32 // 1 + rank; 0: free
}

// pairMerge is the merge whose rank is its place in the list.
type pairMerge struct{ a, b, id int32 }

func newMergeTable(pairs int) *mergeTable {
	bits := uint(4)
	for 1<<bits < 2*pairs {
		bits++
	}
	t := &mergeTable{merges: make([]pairMerge, 0, pairs)}
	t.reset(bits)
	return t
}

func (t *mergeTable) reset(bits uint) {
	t.slots = make([]mergeSlot, 1<<bits)
	t.shift = 64 - bits
}

// slot is where the pair is, or where it would go, and its tag. Multiplying by
// 2^64/φ spreads the low bits of both ids into the high bits (Knuth, TAOCP 6.4).
func (t *mergeTable) slot(a, b int32) (*mergeSlot, uint32) {
	h := (uint64(uint32(a))<<32 | uint64(uint32(b))) * 0x9E3779B97F4A7C15
	tag := uint32(h)
	for i := h >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		s := &t.slots[i]
		if s.next == 0 {
			return s, tag
		}
		if s.tag == tag {
			if m := &t.merges[s.next-1]; m.a == a && m.b == b {
				return s, tag
			}
		}
	}
}

// add appends a merge, whose rank is their number so far; the last one given
// for a pair counts.
func (t *mergeTable) add(a, b, id int32) {
	if 2*(len(t.merges)+1) > len(t.slots) {
		t.reset(64 - t.shift + 1)
		for i, m := range t.merges {
			s, tag := t.slot(m.a, m.b)
			*s = mergeSlot{tag, int32(i) + 1}
		}
	}
	s, tag := t.slot(a, b)
	t.merges = append(t.merges, pairMerge{a, b, id})
	*s = mergeSlot{tag, int32(len(t.merges))}
}

func (t *mergeTable) get(a, b int32) (merge, bool) {
	s, _ := t.slot(a, b)
	if s.next == 0 {
		return merge{}, false
	}
	return merge{s.next - 1, t.merges[s.next-1].id}, true
}
