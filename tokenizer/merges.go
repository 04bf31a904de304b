package tokenizer

// merge is what becomes of two neighbouring symbols: the lower the rank, the
// earlier it happens.
type merge struct{ rank, id int32 }

// mergeTable maps pairs of ids to merges. It is an open-addressing table
// because it is the inner loop of everything: half a million pairs for
// Gemma, looked up about three times for each character.
type mergeTable struct {
	slots []mergeSlot
	count int
	shift uint
}

type mergeSlot struct {
	pair uint64
	merge
}

const noPair = ^uint64(0)

func newMergeTable(pairs int) *mergeTable {
	bits := uint(4)
	for 1<<bits < 2*pairs {
		bits++
	}
	t := &mergeTable{}
	t.reset(bits)
	return t
}

func (t *mergeTable) reset(bits uint) {
	t.slots = make([]mergeSlot, 1<<bits)
	for i := range t.slots {
		t.slots[i].pair = noPair
	}
	t.shift = 64 - bits
}

// slot is where pair is, or where it would go. Multiplying by 2^64/φ spreads
// the low bits of both ids into the high bits (Knuth, TAOCP 6.4).
func (t *mergeTable) slot(pair uint64) *mergeSlot {
	for i := pair * 0x9E3779B97F4A7C15 >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		if s := &t.slots[i]; s.pair == pair || s.pair == noPair {
			return s
		}
	}
}

// put adds a merge; the last one given for a pair counts.
func (t *mergeTable) put(a, b int32, m merge) {
	if 2*(t.count+1) > len(t.slots) {
		old := t.slots
		t.reset(64 - t.shift + 1)
		for _, s := range old {
			if s.pair != noPair {
				*t.slot(s.pair) = s
			}
		}
	}
	pair := uint64(uint32(a))<<32 | uint64(uint32(b))
	s := t.slot(pair)
	if s.pair == noPair {
		t.count++
	}
	*s = mergeSlot{pair, m}
}

func (t *mergeTable) get(a, b int32) (merge, bool) {
	s := t.slot(uint64(uint32(a))<<32 | uint64(uint32(b)))
	return s.merge, s.pair != noPair
}
