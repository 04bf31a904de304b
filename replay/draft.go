package replay

import (
	"math"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/elementary"
	"github.com/smelt-go/smelt/internal/kernel"
)

// Draft is what the slots behind some bases say. Rows are the bases of all texts,
// in order.
type Draft struct {
	Slots, Rows int
	head        *head
	states      []decoder.Matrix // by slot, [rows, hidden]: what the head multiplies
	previous    [][]int32        // by slot: the token before, for a bigram head
}

// head computes logits.
type head struct {
	t             checkpoint.Tensor // [vocab, hidden]
	dense         []float32         // its elements, if they are few
	vocab, hidden int
	softcap       float32
	// Of a bigram head: first·secondᵀ is added, [vocab, rank].
	first, second checkpoint.Tensor
	rank          int
	// Of a clustered vocabulary: only tokens of the top clusters have logits.
	centroids []float32 // [clusters, hidden]
	order     []int32
	top       int
}

// Vocab is the number of logits of a slot: the drafter's vocabulary.
func (d *Draft) Vocab() int { return d.head.vocab }

// Scratch is the memory of a goroutine that asks for logits.
type Scratch struct{ rows, more []float32 }

func grown(s *[]float32, n int) []float32 {
	if cap(*s) < n {
		*s = make([]float32, n)
	}
	return (*s)[:n]
}

// Logits writes those of some tokens of the drafter's vocabulary, in ascending order,
// nil for all, to dst. It may be called from several goroutines, each with its own scratch.
func (d *Draft) Logits(s *Scratch, slot, row int, ids []int32, dst []float32) error {
	h, x := d.head, d.states[slot].Row(row)
	if ids == nil {
		return d.all(s, slot, row, dst)
	}
	if h.order != nil {
		return h.clustered(s, x, ids, dst)
	}
	if h.dense != nil && len(ids) == h.vocab {
		// Ascending, so all.
		kernel.MulF32(dst, h.vocab, x, h.hidden, 1, h.dense, h.hidden, h.vocab, h.hidden)
	} else if err := h.at(s, h.t, x, ids, dst); err != nil {
		return err
	}
	h.cap(dst[:len(ids)])
	if h.rank == 0 {
		return nil
	}
	bias := grown(&s.more, len(ids)+h.rank)
	e := bias[len(ids):]
	if err := h.first.ReadFloat32(e, int(d.previous[slot][row])*h.rank); err != nil {
		return err
	}
	if err := h.at(s, h.second, e, ids, bias); err != nil {
		return err
	}
	kernel.Add(dst[:len(ids)], dst[:len(ids)], bias[:len(ids)])
	return nil
}

// at multiplies rows of t by x.
func (h *head) at(s *Scratch, t checkpoint.Tensor, x []float32, ids []int32, dst []float32) error {
	n := len(x)
	rows := grown(&s.rows, len(ids)*n)
	for i, id := range ids {
		if err := t.ReadFloat32(rows[i*n:(i+1)*n], int(id)*n); err != nil {
			return err
		}
	}
	kernel.MulF32(dst, len(ids), x, n, 1, rows, n, len(ids), n)
	return nil
}

// all takes the vocabulary in pieces.
func (d *Draft) all(s *Scratch, slot, row int, dst []float32) error {
	const piece = 1 << 12
	ids := make([]int32, 0, piece)
	if d.head.order != nil {
		ids = slices.Grow(ids, d.head.vocab)
		for id := range d.head.vocab {
			ids = append(ids, int32(id))
		}
		return d.Logits(s, slot, row, ids, dst)
	}
	for at := 0; at < d.head.vocab; at += piece {
		ids = ids[:0]
		for id := at; id < min(at+piece, d.head.vocab); id++ {
			ids = append(ids, int32(id))
		}
		if err := d.Logits(s, slot, row, ids, dst[at:]); err != nil {
			return err
		}
	}
	return nil
}

func (h *head) cap(z []float32) {
	if h.softcap == 0 {
		return
	}
	for i, v := range z {
		z[i] = float32(elementary.Tanh(float64(v/h.softcap))) * h.softcap
	}
}

// clustered gives tokens of the best clusters their logits, and all others the
// smallest of these minus 1.
func (h *head) clustered(s *Scratch, x []float32, ids []int32, dst []float32) error {
	n := len(h.centroids) / h.hidden
	scores := make([]float32, n)
	kernel.MulF32(scores, n, x, h.hidden, 1, h.centroids, h.hidden, n, h.hidden)
	best := make([]int, n)
	for i := range best {
		best[i] = i
	}
	slices.SortStableFunc(best, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	size := len(h.order) / n
	var chosen []int32
	for _, b := range best[:h.top] {
		chosen = append(chosen, h.order[b*size:(b+1)*size]...)
	}
	z := grown(&s.more, len(chosen))
	if err := h.at(s, h.t, x, chosen, z); err != nil {
		return err
	}
	values := make(map[int32]float32, len(chosen))
	smallest := float32(math.Inf(1))
	for i, id := range chosen {
		values[id] = z[i]
		smallest = min(smallest, z[i])
	}
	for i, id := range ids {
		v, ok := values[id]
		if !ok {
			v = smallest - 1
		}
		dst[i] = v
	}
	return nil
}

// newHead makes the head of a drafter whose matrix is that of path.
func (c *calc) newHead(path string, vocab, hidden int, softcap float64) *head {
	const few = 1 << 20
	h := &head{t: c.tensor(path), vocab: vocab, hidden: hidden, softcap: float32(softcap)}
	if h.t != nil && vocab*hidden <= few {
		var err error
		h.dense, err = checkpoint.ReadAll(h.t)
		c.fail(err)
	}
	return h
}

// see lets the tap see what the head multiplies.
func (c *calc) see(path string, states []decoder.Matrix) {
	if c.tap == nil || c.err != nil {
		return
	}
	for _, x := range states {
		c.fail(c.tap(decoder.Input{Modules: []string{path}, X: x}))
	}
}

// place finds rows of texts that lie one after the other.
type place struct {
	start []int // first row of every text
	bases [][]int
	rows  int // bases of all texts
}

func places(lengths []int, bases [][]int) place {
	p := place{bases: bases}
	at := 0
	for i, n := range lengths {
		p.start = append(p.start, at)
		at += n
		p.rows += len(bases[i])
	}
	return p
}

// each calls f for all bases in order: row of the result, text, base.
func (p place) each(f func(row, text, base int)) {
	row := 0
	for i, bs := range p.bases {
		for _, n := range bs {
			f(row, i, n)
			row++
		}
	}
}
