package runtime

import (
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// attention is the pattern of grouped-query attention over a cache and new
// tokens:
//
//	s = concat(q·k₀ᵀ, q·k₁ᵀ) + mask;  p = softmax(s);  p[:S]·v₀ + p[S:]·v₁
//
// with the rows of a key head's queries, group by group, as one matrix. Where
// the new tokens are in the cache already, there is one part only:
//
//	s = q·k₀ᵀ + mask;  p = softmax(s);  p·v₀
type attention struct {
	q, mask       *mil.Value
	keys, values  [2]*mil.Value // of the cache, of the new tokens or nil
	kv, group     int           // key heads, query heads to each
	tokens, slots int
	fresh         int // tokens, or 0 if there is one part only
	dim           int
	flat          bool // the result is [1,tokens,heads·dim]
	scores        *mil.Op
}

// width is the number of scores of a query.
func (a *attention) width() int { return a.slots + a.fresh }

// fuseAttention recognises the pattern around a softmax.
func (l *lowering) fuseAttention(softmax *mil.Op) {
	a := &attention{}
	var parts []*mil.Op
	if !a.findScores(l, softmax, &parts) {
		return
	}
	end, ok := a.findMix(l, softmax, &parts)
	if !ok || !a.consistent(l, append(parts, softmax, end)) {
		return
	}
	l.absorb(end, append(parts, softmax), func(l *lowering, op *mil.Op) (instr, error) { return l.attention(op, a) })
}

// findScores walks from the softmax up to queries, keys and mask.
func (a *attention) findScores(l *lowering, softmax *mil.Op, parts *[]*mil.Op) bool {
	shape := shapeOf(softmax.In("x"))
	c := l.infer(softmax)
	if len(shape) != 4 || !constants(c, "axis") || c.Int("axis", -1) != -1 && c.Int("axis", -1) != 3 {
		return false
	}
	masked := l.onlyUse(softmax.In("x"), "add")
	if masked == nil {
		return false
	}
	for _, p := range [][2]string{{"x", "y"}, {"y", "x"}} {
		s := masked.In(p[0])
		if !slices.Equal(shapeOf(s), shape) {
			continue
		}
		*parts = append((*parts)[:0], masked)
		if r := l.onlyUse(s, "reshape"); r != nil {
			*parts = append(*parts, r)
			s = r.In("x")
		}
		if len(shapeOf(s)) != 4 {
			continue
		}
		a.mask = masked.In(p[1])
		if joined := l.onlyUse(s, "concat"); joined != nil && len(joined.Ins("values")) == 2 && l.joinsAt(joined, 3) {
			*parts = append(*parts, joined)
			a.scores = joined
			return a.findKeys(l, joined.Ins("values"), parts) && a.masks(shape)
		}
		if m := l.onlyUse(s, "matmul"); m != nil {
			a.scores = m
			return a.findKeys(l, []*mil.Value{s}, parts) && a.masks(shape)
		}
	}
	return false
}

// findKeys matches the products of the queries with one or two sets of keys.
func (a *attention) findKeys(l *lowering, scores []*mil.Value, parts *[]*mil.Op) bool {
	for i, v := range scores {
		m := l.onlyUse(v, "matmul")
		if m == nil || a.q != nil && m.In("x") != a.q {
			return false
		}
		tx, okx := l.flag(m, "transpose_x")
		ty, oky := l.flag(m, "transpose_y")
		if !okx || !oky || tx || !ty {
			return false
		}
		a.q, a.keys[i] = m.In("x"), m.In("y")
		*parts = append(*parts, m)
	}
	q, k0, m := shapeOf(a.q), shapeOf(a.keys[0]), shapeOf(a.mask)
	if len(q) != 4 || len(k0) != 4 || q[0] != 1 || k0[0] != 1 || k0[1] != q[1] || k0[3] != q[3] || len(m) < 2 {
		return false
	}
	a.kv, a.dim, a.slots, a.tokens = q[1], q[3], k0[2], m[len(m)-2]
	if len(scores) == 2 {
		a.fresh = a.tokens
		if !slices.Equal(shapeOf(a.keys[1]), []int{1, a.kv, a.fresh, a.dim}) {
			return false
		}
	}
	if a.tokens == 0 || a.slots == 0 || a.kv == 0 || a.dim == 0 || q[2] == 0 || q[2]%a.tokens != 0 {
		return false
	}
	a.group = q[2] / a.tokens
	return true
}

// masks says that the mask has one row a token, and the scores, of the given
// shape, one matrix of such rows a query head.
func (a *attention) masks(scores []int) bool {
	m := shapeOf(a.mask)
	width := a.width()
	if len(m) > 4 || numElements(m) != a.tokens*width || m[len(m)-1] != width || m[len(m)-2] != a.tokens {
		return false
	}
	byHead := slices.Equal(scores, []int{a.kv, a.group, a.tokens, width})
	return byHead || a.tokens == 1 && slices.Equal(scores, []int{1, a.kv, a.group, width})
}

// findMix walks from the softmax down to the mix, or the sum of two, and on
// to the layout that o_proj takes. It returns the last op.
func (a *attention) findMix(l *lowering, softmax *mil.Op, parts *[]*mil.Op) (end *mil.Op, ok bool) {
	probs := softmax
	if r := l.onlyUser(softmax, "reshape"); r != nil {
		*parts = append(*parts, r)
		probs = r
	}
	rows := []int{1, a.kv, a.group * a.tokens, a.width()}
	if !slices.Equal(shapeOf(probs.Out()), rows) {
		return nil, false
	}
	if a.fresh == 0 {
		m := l.onlyUser(probs, "matmul")
		if m == nil || !a.mixes(l, 0, m, probs) {
			return nil, false
		}
		return a.findLayout(l, m, parts), true
	}
	cuts := l.users[probs.Out()]
	if l.uses[probs.Out()] != 2 || len(cuts) != 2 {
		return nil, false
	}
	if !l.sliceOf(cuts[0], 3, 0, a.slots) {
		cuts = []*mil.Op{cuts[1], cuts[0]}
	}
	if !l.sliceOf(cuts[0], 3, 0, a.slots) || !l.sliceOf(cuts[1], 3, a.slots, rows[3]) {
		return nil, false
	}
	var sum *mil.Op
	for i, cut := range cuts {
		m := l.onlyUser(cut, "matmul")
		if m == nil || !a.mixes(l, i, m, cut) {
			return nil, false
		}
		s := l.onlyUser(m, "add")
		if s == nil || sum != nil && s != sum {
			return nil, false
		}
		sum = s
		*parts = append(*parts, cut, m)
	}
	return a.findLayout(l, sum, parts), true
}

// mixes says that m multiplies probabilities by values of part i.
func (a *attention) mixes(l *lowering, i int, m, probs *mil.Op) bool {
	tx, okx := l.flag(m, "transpose_x")
	ty, oky := l.flag(m, "transpose_y")
	a.values[i] = m.In("y")
	return okx && oky && !tx && !ty && m.In("x") == probs.Out() && slices.Equal(shapeOf(m.In("y")), shapeOf(a.keys[i]))
}

// findLayout goes on from the mix to [1,tokens,heads·dim], if the program
// does. It returns the last op.
func (a *attention) findLayout(l *lowering, mix *mil.Op, parts *[]*mil.Op) *mil.Op {
	heads := l.onlyUser(mix, "reshape")
	if heads == nil || !slices.Equal(shapeOf(heads.Out()), []int{1, a.kv * a.group, a.tokens, a.dim}) {
		return mix
	}
	turned := l.onlyUser(heads, "transpose")
	if !l.isPermutation(turned, 0, 2, 1, 3) {
		return mix
	}
	flat := l.onlyUser(turned, "reshape")
	if flat == nil || !slices.Equal(shapeOf(flat.Out()), []int{1, a.tokens, a.kv * a.group * a.dim}) {
		return mix
	}
	a.flat = true
	*parts = append(*parts, mix, heads, turned)
	return flat
}

// operands are queries, mask, keys and values of the cache, and those of the
// new tokens where they are apart.
func (a *attention) operands() []*mil.Value {
	v := []*mil.Value{a.q, a.mask, a.keys[0], a.values[0]}
	if a.fresh > 0 {
		v = append(v, a.keys[1], a.values[1])
	}
	return v
}

// consistent says that all of the pattern is of one element type.
func (a *attention) consistent(l *lowering, ops []*mil.Op) bool {
	d := resultType(a.scores)
	for _, op := range ops {
		if resultType(op) != d {
			return false
		}
	}
	for _, v := range a.operands() {
		if t, ok := v.Tensor(); !ok || t.DType != d {
			return false
		}
	}
	return true
}
