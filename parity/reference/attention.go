package reference

import "github.com/smelt-go/smelt/internal/elementary"

// heads describes the attention of one layer.
type heads struct {
	query, kv, dim int
	scale, softcap float32 // as in Config
	// span says which rows of k and v query row t sees: first ≤ row < end.
	span func(t int) (first, end int)
}

// causal lets position t see 0..t, or the last window positions of these if
// window > 0.
func causal(window int) func(t int) (first, end int) {
	return func(t int) (int, int) {
		if window > 0 {
			return max(0, t-window+1), t + 1
		}
		return 0, t + 1
	}
}

// attention computes softmax(cap(scale·q·kᵀ) + mask)·v for every query head.
//
// q [T, query·dim], k and v [S, kv·dim], out like q. Query head i reads KV head
// i/(query/kv).
//
// It returns the largest magnitude among the scaled scores of attended pairs,
// before the softcap.
func attention(out, q, k, v *Matrix, h heads, dot dotFunc) float32 {
	const rows = 8
	group := h.query / h.kv
	blocks := (q.Rows + rows - 1) / rows
	peaks := make([]float32, h.query*blocks)
	parallel(len(peaks), 1, func(lo, hi int) {
		scores := make([]float32, k.Rows)
		sum := make([]float64, h.dim)
		for job := lo; job < hi; job++ {
			head, block := job/blocks, job%blocks
			qAt, kvAt := head*h.dim, head/group*h.dim
			for t := block * rows; t < min((block+1)*rows, q.Rows); t++ {
				first, end := h.span(t)
				query := q.Row(t)[qAt : qAt+h.dim]
				s := scores[:end-first]
				for i := range s {
					s[i] = float32(dot(query, k.Row(first + i)[kvAt:kvAt+h.dim])) * h.scale
				}
				peaks[job] = max(peaks[job], maxAbs(s))
				if h.softcap != 0 {
					softcap(s, h.softcap)
				}
				weigh(out.Row(t)[qAt:qAt+h.dim], sum, s, func(i int) []float32 {
					return v.Row(first + i)[kvAt : kvAt+h.dim]
				})
			}
		}
	})
	return maxAbs(peaks)
}

// weigh writes Σ softmax(scores)ᵢ·value(i) to out; sum is scratch of the same
// length.
func weigh(out []float32, sum []float64, scores []float32, value func(i int) []float32) {
	clear(sum)
	top := scores[0]
	for _, s := range scores {
		top = max(top, s)
	}
	var total float64
	for i, s := range scores {
		p := elementary.Exp(float64(s - top))
		total += p
		for j, x := range value(i) {
			sum[j] += float64(p * float64(x))
		}
	}
	for j, x := range sum {
		out[j] = float32(x / total)
	}
}
