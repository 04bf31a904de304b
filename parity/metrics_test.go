package parity

import (
	"encoding/json"
	"math"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func row(t *rapid.T) []float32 {
	return rapid.SliceOfN(rapid.Float32Range(-30, 30), 2, 60).Draw(t, "row")
}

func TestTopKIsAStableSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.SampledFrom([]float32{-1, 0, 1, 2, 3}), 1, 30).Draw(t, "row")
		all := make([]Scored, len(x))
		for i, v := range x {
			all[i] = Scored{int32(i), v}
		}
		sort.SliceStable(all, func(i, j int) bool { return all[i].Logit > all[j].Logit })
		if d := cmp.Diff(all[:min(5, len(all))], topK(x, 5)); d != "" {
			t.Fatal(d)
		}
	})
}

// A row reduced in tiles, as the reference's head gives it, is the row
// reduced at once.
func TestRowSumTiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := row(t)
		want := positionOf(x, false)
		acc := rowSum{top: math.Inf(-1)}
		for at := 0; at < len(x); {
			n := rapid.IntRange(1, len(x)-at).Draw(t, "tile")
			acc.add(at, x[at:at+n])
			at += n
		}
		if d := cmp.Diff(want.Top, acc.best); d != "" {
			t.Fatal(d)
		}
		if math.Abs(want.LSE-acc.lse()) > 1e-9 {
			t.Fatalf("log-sum-exp %v in tiles, %v at once", acc.lse(), want.LSE)
		}
	})
}

func TestKL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := row(t)
		shifted := make([]float32, len(a)) // a softmax does not see a shift
		for i, v := range a {
			shifted[i] = v + 4
		}
		if kl := klDivergence(a, shifted, logSumExp(a), logSumExp(shifted)); math.Abs(kl) > 1e-5 {
			t.Fatalf("KL of shifted rows is %g", kl)
		}
	})
	// Two outcomes, p = 1/2 against q = 1/4.
	a, b := []float32{0, 0}, []float32{0, float32(math.Log(3))}
	want := 0.5*math.Log(0.5/0.25) + 0.5*math.Log(0.5/0.75)
	if got := klDivergence(a, b, logSumExp(a), logSumExp(b)); math.Abs(got-want) > 1e-6 {
		t.Errorf("KL is %g, want %g", got, want)
	}
}

func TestFlipsCountAgainstTheMargin(t *testing.T) {
	rec := &Recording{IDs: []int32{0, 1, 0}, Vocab: 3, Noise: 0.1, MaxAbs: 3}
	for _, r := range [][]float32{{1, 0.9, 0}, {3, 1, 0}, {0, 0, 2}} {
		rec.Positions = append(rec.Positions, positionOf(r, true))
	}
	var m Metrics
	for i, r := range [][]float32{{1, 1.05, 0}, {1, 3, 0}, {0, 0, 2}} {
		p := positionOf(r, false)
		m.add(rec, i, r, &p, 0.2)
	}
	m.finish()
	want := []Flip{{0, 0, 1, m.Flips[0].Margin, false}, {1, 0, 1, 2, true}}
	if d := cmp.Diff(want, m.Flips); d != "" {
		t.Error(d)
	}
	if math.Abs(m.Agree-1.0/3) > 1e-12 || m.MaxAbs != 2 || m.MaxAbsAt != 1 {
		t.Errorf("agreement %g, max |Δ| %g at %d", m.Agree, m.MaxAbs, m.MaxAbsAt)
	}
}

func TestNaNIsNeverForgotten(t *testing.T) {
	rec := &Recording{IDs: []int32{0, 0, 0}, Vocab: 2}
	var m Metrics
	for i, r := range [][]float32{{1, 0}, {float32(math.NaN()), 0}, {1, 0}} {
		rec.Positions = append(rec.Positions, positionOf([]float32{1, 0}, true))
		p := positionOf(r, false)
		m.add(rec, i, r, &p, 1)
	}
	m.finish()
	res := &Result{Status: Pass}
	res.atMost("max", m.MaxAbs, 1e9)
	if res.Status != Fail {
		t.Errorf("a NaN among the logits passes: max |Δ| is %v", m.MaxAbs)
	}
	if got, err := json.Marshal(res.Numbers[0]); err != nil || string(got) != `{"name":"max","value":null,"limit":1000000000}` {
		t.Errorf("%s %v", got, err)
	}
}

func TestHeldIsTheNewestPositionOfASlot(t *testing.T) {
	for _, c := range []struct {
		layout          string
		slot, pos, want int
	}{
		{"ring", 0, 0, -1}, {"ring", 0, 1, 0}, {"ring", 3, 3, -1}, {"ring", 0, 4, 0}, {"ring", 0, 5, 4}, {"ring", 3, 9, 7},
		{"linear", 3, 3, -1}, {"linear", 3, 9, 3},
	} {
		a := attn(c.layout, 4)
		if got := held(a, c.slot, c.pos); got != c.want {
			t.Errorf("%s: slot %d at position %d holds %d, want %d", c.layout, c.slot, c.pos, got, c.want)
		}
	}
}

func TestLogSumExpOfLongRows(t *testing.T) {
	row := make([]float32, longRow+5)
	for i := range row {
		row[i] = float32(i%1013)/40 - float32(i%7)
	}
	row[3*4096+1] = 31
	sum := 0.0
	for _, v := range row {
		sum += math.Exp(float64(v))
	}
	if got, want := logSumExp(row), math.Log(sum); math.Abs(got-want) > 1e-6 {
		t.Errorf("%v, want %v", got, want)
	}
	for i := range 2 * 4096 {
		row[i] = float32(math.Inf(-1)) // masked tokens
	}
	if got := logSumExp(row); !(got > 31 && got < 40) {
		t.Errorf("with masked tokens: %v", got)
	}
	row[9000] = float32(math.NaN())
	if got := logSumExp(row); got == got {
		t.Errorf("with a NaN: %v", got)
	}
}
