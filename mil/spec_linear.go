package mil

import (
	"fmt"
	"strings"
)

// Linear algebra: linear, matmul, einsum and attention.

var linearSpecs = []OpSpec{
	op("linear", "x · weightᵀ + bias", inferLinear,
		req("x", Numbers).bind("T"),
		attr("weight", Numbers).bind("T").free(CoreML7),
		optAttr("bias", Numbers, zeroBias).bind("T").free(CoreML7)),
	op("matmul", "matrix product of the last two axes, the others broadcast", inferMatmul,
		req("x", Numbers).bind("T"),
		req("y", Numbers).bind("T").free(CoreML7),
		optAttr("transpose_x", Bools, false),
		optAttr("transpose_y", Bools, false)),
	op("einsum", "nchw,nwhu->nchu or chw,whu->chu, in any letters", inferEinsum,
		req("values", Numbers).variadic(), attr("equation", Strings)),
	op("scaled_dot_product_attention", "softmax(query · keyᵀ / sqrt(E) + mask) · value", inferSDPA,
		req("query", Floats).bind("T"), req("key", Floats).bind("T"), req("value", Floats).bind("T"),
		opt("attn_mask", Floats|Bools, nil)).from(CoreML8),
}

// zeroBias is the bias that linear has when none is given, in the type of
// the weight.
func zeroBias(c *Infer) any {
	w := c.T("weight")
	if w.Rank() != 2 || w.Shape[0] == Unknown {
		return nil
	}
	return &Literal{T: T(w.DType, w.Shape[0]), Data: make([]byte, T(w.DType, w.Shape[0]).NumBytes())}
}

func inferLinear(c *Infer) ([]Type, error) {
	x, w := c.T("x"), c.T("weight")
	if w.Rank() != 2 || x.Rank() < 1 {
		return nil, fmt.Errorf("x %v, weight %v: want rank at least 1 and exactly 2", x, w)
	}
	if in := x.Shape[x.Rank()-1]; !sameDim(in, w.Shape[1]) {
		return nil, fmt.Errorf("last axis of x is %d, weight %v takes %d", in, w, w.Shape[1])
	}
	if c.Has("bias") {
		if b := c.T("bias"); b.Rank() != 1 || !sameDim(b.Shape[0], w.Shape[0]) {
			return nil, fmt.Errorf("bias is %v, want %d elements", b, w.Shape[0])
		}
	}
	s := append([]int(nil), x.Shape...)
	s[len(s)-1] = w.Shape[0]
	return one(TensorType{x.DType, s}), nil
}

// known reports whether v's contents are fixed at compile time.
func (v *Value) known() bool {
	return v != nil && (v.Const != nil || v.Op != nil && strings.HasPrefix(v.Op.Kind, "constexpr_"))
}

// inferMatmul lets the element types differ (from CoreML7 on, as the
// parameter table says) if one operand is a constant: the other decides.
func inferMatmul(c *Infer) ([]Type, error) {
	x, y := c.T("x"), c.T("y")
	d := x.DType
	if x.DType != y.DType {
		switch kx, ky := c.Op.In("x").known(), c.Op.In("y").known(); {
		case kx == ky:
			return nil, fmt.Errorf("x is %v, y is %v: they may differ only if exactly one is a constant", x.DType, y.DType)
		case kx:
			d = y.DType
		}
	}
	s, err := MatmulShape(x.Shape, y.Shape, c.Bool("transpose_x", false), c.Bool("transpose_y", false))
	return one(TensorType{d, s}), err
}

// MatmulShape is the shape of the product of x and y; vectors are promoted
// to matrices as NumPy does.
func MatmulShape(x, y []int, tx, ty bool) ([]int, error) {
	if len(x) == 0 || len(y) == 0 || len(x) == 1 && tx || len(y) == 1 && ty {
		return nil, fmt.Errorf("cannot multiply %s (transpose %v) and %s (transpose %v)", shapeString(x), tx, shapeString(y), ty)
	}
	rows := func(s []int, t bool) (batch []int, m, k int) {
		n := len(s)
		if t {
			return s[:n-2], s[n-1], s[n-2]
		}
		return s[:n-2], s[n-2], s[n-1]
	}
	xs, ys := x, y
	if len(x) == 1 {
		xs = []int{1, x[0]}
	}
	if len(y) == 1 {
		ys = []int{y[0], 1}
	}
	bx, m, k := rows(xs, tx)
	by, k2, n := rows(ys, ty)
	if !sameDim(k, k2) {
		return nil, fmt.Errorf("cannot multiply %s and %s: inner sizes are %d and %d", shapeString(x), shapeString(y), k, k2)
	}
	s, err := Broadcast(bx, by)
	if err != nil {
		return nil, err
	}
	if len(x) > 1 {
		s = append(s, m)
	}
	if len(y) > 1 {
		s = append(s, n)
	}
	return s, nil
}

func inferEinsum(c *Infer) ([]Type, error) {
	v := c.Op.Ins("values")
	if len(v) != 2 {
		return nil, fmt.Errorf("values holds %d tensors, want 2", len(v))
	}
	x, okx := v[0].Tensor()
	y, oky := v[1].Tensor()
	if !okx || !oky || x.DType != y.DType || x.Rank() != y.Rank() {
		return nil, fmt.Errorf("values are %v and %v, want the same type and rank", v[0].Type, v[1].Type)
	}
	if err := checkEquation(c.Str("equation", ""), x.Rank()); err != nil {
		return nil, err
	}
	s, err := EinsumShape(x.Shape, y.Shape)
	return one(TensorType{x.DType, s}), err
}

// checkEquation accepts nchw,nwhu->nchu (rank 4) and chw,whu->chu (rank 3) up
// to a renaming of the letters.
func checkEquation(eq string, rank int) error {
	form := map[int]string{3: "012,213->013", 4: "0123,0324->0124"}[rank]
	var b strings.Builder
	seen := map[rune]int{}
	for _, r := range strings.ReplaceAll(eq, " ", "") {
		if strings.ContainsRune(",->", r) {
			b.WriteRune(r)
			continue
		}
		if _, ok := seen[r]; !ok {
			seen[r] = len(seen)
		}
		fmt.Fprint(&b, seen[r])
	}
	if form == "" || b.String() != form {
		return fmt.Errorf("equation %q on rank %d is not supported (want nchw,nwhu->nchu or chw,whu->chu; write other contractions as transpose and matmul)", eq, rank)
	}
	return nil
}

// EinsumShape is the output shape of the two supported equations: axes -3 and
// -1 multiply, axes -2 and -4 are batch axes and broadcast.
func EinsumShape(x, y []int) ([]int, error) {
	n := len(x)
	if !sameDim(x[n-1], y[n-3]) {
		return nil, fmt.Errorf("%s and %s do not contract", shapeString(x), shapeString(y))
	}
	out := append([]int(nil), x...)
	out[n-1] = y[n-1]
	for i := n - 2; i >= 0; i -= 2 {
		b, err := Broadcast(x[i:i+1], y[i:i+1])
		if err != nil {
			return nil, err
		}
		out[i] = b[0]
	}
	return out, nil
}

func inferSDPA(c *Infer) ([]Type, error) {
	q, k, v := c.T("query"), c.T("key"), c.T("value")
	n := q.Rank()
	if n < 3 || k.Rank() != n || v.Rank() != n {
		return nil, fmt.Errorf("query %v, key %v, value %v: want one rank, at least 3", q, k, v)
	}
	for i := range n - 2 {
		if !sameDim(q.Shape[i], k.Shape[i]) || !sameDim(q.Shape[i], v.Shape[i]) {
			return nil, fmt.Errorf("query %v, key %v, value %v differ in batch axis %d (repeat key and value heads first)", q, k, v, i)
		}
	}
	if !sameDim(q.Shape[n-1], k.Shape[n-1]) {
		return nil, fmt.Errorf("query %v and key %v differ in their last axis", q, k)
	}
	if !sameDim(k.Shape[n-2], v.Shape[n-2]) {
		return nil, fmt.Errorf("key %v and value %v differ in length", k, v)
	}
	if c.Has("attn_mask") {
		m := c.T("attn_mask")
		if m.Rank() == 0 || !sameDim(m.Shape[m.Rank()-1], k.Shape[n-2]) {
			return nil, fmt.Errorf("attn_mask is %v, want last axis %d", m, k.Shape[n-2])
		}
		if _, err := Broadcast(q.Shape[:n-1], m.Shape[:m.Rank()-1]); err != nil {
			return nil, fmt.Errorf("attn_mask: %w", err)
		}
	}
	s := append([]int(nil), q.Shape...)
	s[n-1] = v.Shape[n-1]
	return one(TensorType{q.DType, s}), nil
}
