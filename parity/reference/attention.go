package reference

import "github.com/smelt-go/smelt/internal/elementary"

// attention computes softmax(cap(scale·q·kᵀ) + mask)·v for every query head.
//
// q [T, heads·headDim], k and v [T, kvHeads·headDim], out like q. Query head h
// reads KV head h/(heads/kvHeads). Position t attends to positions first..t,
// where first is 0, or t−window+1 on a sliding layer.
//
// It returns the largest magnitude among the scaled scores of attended pairs,
// before the softcap.
func attention(out, q, k, v *Matrix, c *Config, kind LayerKind, dot dotFunc) float32 {
	const rows = 8
	group := c.Heads / c.KVHeads
	blocks := (q.Rows + rows - 1) / rows
	peaks := make([]float32, c.Heads*blocks)
	parallel(len(peaks), 1, func(lo, hi int) {
		scores := make([]float32, q.Rows)
		sum := make([]float64, c.HeadDim)
		for job := lo; job < hi; job++ {
			head, block := job/blocks, job%blocks
			qAt, kvAt := head*c.HeadDim, head/group*c.HeadDim
			for t := block * rows; t < min((block+1)*rows, q.Rows); t++ {
				first := 0
				if kind == SlidingAttention {
					first = max(0, t-c.Window+1)
				}
				query := q.Row(t)[qAt : qAt+c.HeadDim]
				s := scores[:t+1-first]
				for i := range s {
					s[i] = float32(dot(query, k.Row(first + i)[kvAt:kvAt+c.HeadDim])) * c.ScoreScale
				}
				peaks[job] = max(peaks[job], maxAbs(s))
				if c.ScoreSoftcap != 0 {
					softcap(s, c.ScoreSoftcap)
				}
				weigh(out.Row(t)[qAt:qAt+c.HeadDim], sum, s, func(i int) []float32 {
					return v.Row(first + i)[kvAt : kvAt+c.HeadDim]
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
