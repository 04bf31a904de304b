package parity

import (
	"math"
	"slices"

	"github.com/smelt-go/smelt/internal/kernel"
)

// longRow is from how many logits on logSumExp takes its exponentials from a
// vector kernel. They are float32, good for 1e-7 of the result, and twenty times
// as fast.
const longRow = 1 << 16

// logSumExp is log Σ exp(x), summed in float64.
func logSumExp(row []float32) float64 {
	top := float64(kernel.Max(row))
	var sum float64
	if len(row) < longRow {
		for _, v := range row {
			sum += math.Exp(float64(v) - top)
		}
		return top + math.Log(sum)
	}
	var shares [4096]float32
	for piece := range slices.Chunk(row, len(shares)) {
		kernel.Softmax(shares[:len(piece)], piece)
		// The largest has the share exp(0)/Σ.
		i := kernel.ArgMax(piece)
		if m := float64(piece[i]); m > math.Inf(-1) || m != m {
			sum += math.Exp(m-top) / float64(shares[i])
		}
	}
	return top + math.Log(sum)
}

// klDivergence is KL(softmax(want) ‖ softmax(got)) in nats, given the
// log-sum-exp of both rows.
func klDivergence(want, got []float32, wantLSE, gotLSE float64) float64 {
	var kl float64
	for i, w := range want {
		logP := float64(w) - wantLSE
		if logP < -60 {
			continue // less than the last place of the sum
		}
		if p := math.Exp(logP); p > 0 {
			kl += p * (logP - (float64(got[i]) - gotLSE))
		}
	}
	return kl
}

// cosine is the cosine of the angle between two vectors; 1 if both are zero.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i, x := range a {
		ab += float64(x) * float64(b[i])
		aa += float64(x) * float64(x)
		bb += float64(b[i]) * float64(b[i])
	}
	if aa == 0 && bb == 0 {
		return 1
	}
	return ab / math.Sqrt(aa*bb)
}

// maxAbsDiff is the largest |a-b|; NaN if any difference is NaN.
func maxAbsDiff(a, b []float32) float64 {
	var peak float64
	for i, x := range a {
		d := math.Abs(float64(x) - float64(b[i]))
		if !(d <= peak) {
			if peak = d; d != d {
				return d
			}
		}
	}
	return peak
}

// finite returns the index of the first NaN or infinity, or -1.
func finite(x []float32) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}

func maxAbs(x []float32) float64 {
	return float64(math.Float32frombits(kernel.MaxBits(x)))
}

// Flip is a position where the bundle chose another token than the reference.
type Flip struct {
	Position int   `json:"position"`
	Want     int32 `json:"want"`
	Got      int32 `json:"got"`
	Margin   Num   `json:"margin"` // of the reference's first choice over its second
	Counts   bool  `json:"counts"` // the margin exceeds what noise explains
}

// Metrics compare one run with a recording.
type Metrics struct {
	Positions  int
	Agree      float64 // share of equal argmax, 0…1
	Top3, Top5 float64 // mean share of the reference's best that are among the bundle's best
	Flips      []Flip  // all
	MaxAbs     float64 // largest |Δlogit| over full rows, else over the reference's best tokens
	MaxAbsAt   int     // where
	Rows       int     // positions with a full row; the next four need them
	KLMean     float64 // KL(reference ‖ bundle), nats
	KLMax      float64
	Cosine     float64 // smallest
	Ref, Ppl   float64 // perplexity of the sequence by the reference and by the bundle
	Problem    string  // the first result that is wrong whatever the reference says: NaN, infinity
	TokenHead  string  // first disagreement of token head and logits
	Wrapped    string  // first token that is off by a multiple of 65,536
	TokenHeads int     // rows where both were compared

	tokenHeadAt, wrappedAt int

	nll, refNLL   float64
	nllN, overlap int
	top3, top5    float64
	agree         int
	klSum         float64
}

// add compares the row after position t. limit is the margin above which a
// flip counts.
func (m *Metrics) add(rec *Recording, t int, row []float32, got *Position, limit float64) {
	want := &rec.Positions[t]
	m.Positions++
	if got.Argmax == want.Argmax {
		m.agree++
	} else {
		margin := want.Margin()
		m.Flips = append(m.Flips, Flip{t, want.Argmax, got.Argmax, Num(margin), !(margin <= limit)})
	}
	if row == nil {
		return
	}
	m.overlaps(want, got)
	worst := 0.0
	if want.Row != nil {
		worst = maxAbsDiff(want.Row, row)
		kl := klDivergence(want.Row, row, logSumExp(want.Row), got.LSE)
		m.klSum += kl
		m.KLMax = math.Max(m.KLMax, kl)
		c := cosine(want.Row, row)
		if m.Rows == 0 || c < m.Cosine {
			m.Cosine = c
		}
		m.Rows++
	} else {
		for _, s := range want.Top {
			worst = math.Max(worst, math.Abs(float64(s.Logit)-float64(row[s.ID])))
		}
	}
	if !(worst <= m.MaxAbs) && m.MaxAbs == m.MaxAbs { // a NaN stays
		m.MaxAbs, m.MaxAbsAt = worst, t
	}
	if t+1 < len(rec.IDs) && want.Row != nil {
		next := rec.IDs[t+1]
		m.refNLL += logSumExp(want.Row) - float64(want.Row[next])
		m.nll += got.LSE - float64(row[next])
		m.nllN++
	}
}

func (m *Metrics) overlaps(want, got *Position) {
	if len(want.Top) < 5 || len(got.Top) < 5 {
		return
	}
	share := func(k int) float64 {
		n := 0
		for _, a := range want.Top[:k] {
			for _, b := range got.Top[:k] {
				if a.ID == b.ID {
					n++
				}
			}
		}
		return float64(n) / float64(k)
	}
	m.top3 += share(3)
	m.top5 += share(5)
	m.overlap++
}

// finish turns sums into means.
func (m *Metrics) finish() {
	if m.Positions > 0 {
		m.Agree = float64(m.agree) / float64(m.Positions)
	}
	if m.overlap > 0 {
		m.Top3, m.Top5 = m.top3/float64(m.overlap), m.top5/float64(m.overlap)
	}
	if m.Rows > 0 {
		m.KLMean = m.klSum / float64(m.Rows)
	}
	if m.nllN > 0 {
		m.Ppl, m.Ref = math.Exp(m.nll/float64(m.nllN)), math.Exp(m.refNLL/float64(m.nllN))
	}
}

// counted are the flips that noise does not explain.
func (m *Metrics) counted() []Flip {
	var out []Flip
	for _, f := range m.Flips {
		if f.Counts {
			out = append(out, f)
		}
	}
	return out
}
