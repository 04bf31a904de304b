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
// with the rows of a key head's queries, group by group, as one matrix.
type attention struct {
	q, mask        *mil.Value
	keys, values   [2]*mil.Value // of the cache, of the new tokens
	kv, group      int           // key heads, query heads to each
	tokens, slots  int
	dim            int
	flat           bool // the result is [1,tokens,heads·dim]
	scores, mixing *mil.Op
}

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
		joined := l.onlyUse(s, "concat")
		if joined == nil || len(joined.Ins("values")) != 2 || !l.joinsAt(joined, 3) || len(shapeOf(s)) != 4 {
			continue
		}
		*parts = append(*parts, joined)
		a.mask, a.scores = masked.In(p[1]), joined
		return a.findKeys(l, joined, parts) && a.masks(shape)
	}
	return false
}

func (a *attention) findKeys(l *lowering, joined *mil.Op, parts *[]*mil.Op) bool {
	for i, v := range joined.Ins("values") {
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
	q, k0, k1 := shapeOf(a.q), shapeOf(a.keys[0]), shapeOf(a.keys[1])
	if len(q) != 4 || len(k0) != 4 || len(k1) != 4 || q[0] != 1 || k0[0] != 1 || k1[0] != 1 {
		return false
	}
	a.kv, a.dim, a.slots, a.tokens = q[1], q[3], k0[2], k1[2]
	if a.tokens == 0 || a.slots == 0 || a.kv == 0 || a.dim == 0 || q[2] == 0 || q[2]%a.tokens != 0 {
		return false
	}
	a.group = q[2] / a.tokens
	return k0[1] == a.kv && k1[1] == a.kv && k0[3] == a.dim && k1[3] == a.dim
}

// masks says that the mask has one row a token, and the scores, of the given
// shape, one matrix of such rows a query head.
func (a *attention) masks(scores []int) bool {
	m := shapeOf(a.mask)
	width := a.slots + a.tokens
	if len(m) < 2 || len(m) > 4 || numElements(m) != a.tokens*width || m[len(m)-1] != width || m[len(m)-2] != a.tokens {
		return false
	}
	byHead := slices.Equal(scores, []int{a.kv, a.group, a.tokens, width})
	return byHead || a.tokens == 1 && slices.Equal(scores, []int{1, a.kv, a.group, width})
}

// findMix walks from the softmax down to the sum of the two mixes and, if
// there is one, on to the layout that o_proj takes. It returns the last op.
func (a *attention) findMix(l *lowering, softmax *mil.Op, parts *[]*mil.Op) (end *mil.Op, ok bool) {
	probs := softmax
	if r := l.onlyUser(softmax, "reshape"); r != nil {
		*parts = append(*parts, r)
		probs = r
	}
	rows := []int{1, a.kv, a.group * a.tokens, a.slots + a.tokens}
	cuts := l.users[probs.Out()]
	if l.uses[probs.Out()] != 2 || len(cuts) != 2 || !slices.Equal(shapeOf(probs.Out()), rows) {
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
		if m == nil || m.In("x") != cut.Out() {
			return nil, false
		}
		tx, okx := l.flag(m, "transpose_x")
		ty, oky := l.flag(m, "transpose_y")
		s := l.onlyUser(m, "add")
		if !okx || !oky || tx || ty || s == nil || sum != nil && s != sum {
			return nil, false
		}
		a.values[i], sum = m.In("y"), s
		if !slices.Equal(shapeOf(m.In("y")), shapeOf(a.keys[i])) {
			return nil, false
		}
		*parts = append(*parts, cut, m)
	}
	a.mixing = sum
	heads := l.onlyUser(sum, "reshape")
	if heads == nil || !slices.Equal(shapeOf(heads.Out()), []int{1, a.kv * a.group, a.tokens, a.dim}) {
		return sum, true
	}
	turned := l.onlyUser(heads, "transpose")
	if !l.isPermutation(turned, 0, 2, 1, 3) {
		return sum, true
	}
	flat := l.onlyUser(turned, "reshape")
	if flat == nil || !slices.Equal(shapeOf(flat.Out()), []int{1, a.tokens, a.kv * a.group * a.dim}) {
		return sum, true
	}
	a.flat = true
	*parts = append(*parts, sum, heads, turned)
	return flat, true
}

// consistent says that all of the pattern is of one element type.
func (a *attention) consistent(l *lowering, ops []*mil.Op) bool {
	d := resultType(a.scores)
	for _, op := range ops {
		if resultType(op) != d {
			return false
		}
	}
	for _, v := range []*mil.Value{a.q, a.mask, a.keys[0], a.keys[1], a.values[0], a.values[1]} {
		if t, ok := v.Tensor(); !ok || t.DType != d {
			return false
		}
	}
	return true
}
