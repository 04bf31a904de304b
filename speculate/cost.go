package speculate

import "math"

// Costs are what the parts of a round take, in seconds or any other unit.
type Costs struct {
	Decode float64 `json:"decode"` // of the target, one token without speculation
	Draft  float64 `json:"draft"`  // one drafted token
	// Verify of the target by number of tokens fed: [1] is the pending token
	// alone. Lengths that were not measured are interpolated.
	Verify []float64 `json:"verify"`
}

// C is the cost ratio c: a drafted token against a decoded one.
func (c Costs) C() float64 { return c.Draft / c.Decode }

// V is the verify ratio v(n): feeding n tokens at once against one decoded.
func (c Costs) V(n int) float64 { return c.verify(n) / c.Decode }

func (c Costs) verify(n int) float64 {
	known := func(k int) bool { return k < len(c.Verify) && c.Verify[k] > 0 }
	if known(n) {
		return c.Verify[n]
	}
	lo, hi := n, n
	for lo > 0 && !known(lo) {
		lo--
	}
	for hi < len(c.Verify) && !known(hi) {
		hi++
	}
	switch {
	case lo > 0 && hi < len(c.Verify):
		x := float64(n-lo) / float64(hi-lo)
		return c.Verify[lo] + x*(c.Verify[hi]-c.Verify[lo])
	case lo > 0:
		return c.Verify[lo]
	case hi < len(c.Verify):
		return c.Verify[hi]
	}
	return c.Decode
}

// Speedup over serial decoding of rounds that draft gamma tokens and emit tau:
// τ / (γc + v(γ+1)). With v = 1 and γ = 1 it exceeds 1 where the acceptance
// exceeds c.
func (c Costs) Speedup(tau float64, gamma int) float64 {
	return tau / c.BreakEvenTau(gamma)
}

// BreakEvenTau is the τ at which a round is worth its cost: γc + v(γ+1).
func (c Costs) BreakEvenTau(gamma int) float64 {
	return float64(gamma)*c.C() + c.V(gamma+1)
}

// BreakEven is the acceptance at which speculation pays, if every draft is
// accepted with the same probability: the α of (1−α^{γ+1})/(1−α) = γc+v(γ+1).
// It exceeds 1 where nothing pays.
func (c Costs) BreakEven(gamma int) float64 {
	want := c.BreakEvenTau(gamma)
	switch {
	case want <= 1:
		return 0
	case want > float64(gamma+1):
		return math.Inf(1)
	}
	lo, hi := 0.0, 1.0
	for range 60 {
		mid := (lo + hi) / 2
		if TauAt(mid, gamma) < want {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

// TauAt is the number of tokens a round emits if each of gamma drafts is
// accepted with probability alpha: 1 + α + … + α^γ.
func TauAt(alpha float64, gamma int) float64 {
	tau, p := 1.0, 1.0
	for range gamma {
		p *= alpha
		tau += p
	}
	return tau
}

// Of is the cost of a round.
func (c Costs) Of(r Round) float64 {
	return float64(r.Drafted)*c.Draft + c.verify(r.Drafted+1)
}

// Predict is the speedup over serial decoding of rounds as they went: what
// their tokens would cost one by one, divided by what the rounds cost.
func (c Costs) Predict(records []Record) float64 {
	var tokens, spent float64
	for i := range records {
		for _, r := range records[i].Rounds {
			tokens += float64(r.Accepted + 1)
			spent += c.Of(r)
		}
	}
	return tokens * c.Decode / spent
}

// ExpectedAcceptance is the probability that a token drawn from q survives
// verification against p, Σ min(p, q) = 1 − TV(p, q), both given as logits.
func ExpectedAcceptance(p, q []float32) float64 {
	mp, zp := partition(p)
	mq, zq := partition(q)
	sum := 0.0
	for i := range p {
		sum += min(math.Exp(float64(p[i])-mp)/zp, math.Exp(float64(q[i])-mq)/zq)
	}
	return sum
}

func partition(x []float32) (largest, z float64) {
	largest = math.Inf(-1)
	for _, v := range x {
		largest = max(largest, float64(v))
	}
	for _, v := range x {
		z += math.Exp(float64(v) - largest)
	}
	return largest, z
}
