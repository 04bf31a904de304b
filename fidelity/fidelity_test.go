package fidelity

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// table is a model whose logits after a token depend on that token alone; it
// emits them in pieces of n.
type table struct {
	rows [][]float32
	n    int
}

func (t table) Vocab() int { return len(t.rows[0]) }

func (t table) Logits(_ context.Context, ids []int32, emit func(row, first int, logits []float32) error) error {
	for first := 0; first < t.Vocab(); first += t.n {
		for i, id := range ids[:len(ids)-1] {
			row := t.rows[id]
			if err := emit(i, first, row[first:min(first+t.n, len(row))]); err != nil {
				return err
			}
		}
	}
	return nil
}

func random(vocab int, seed uint64, n int) table {
	rng := rand.New(rand.NewPCG(seed, 1))
	t := table{n: n}
	for range vocab {
		row := make([]float32, vocab)
		for i := range row {
			row[i] = float32(rng.NormFloat64() * 3)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func softmax(x []float32) []float64 {
	var sum float64
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = math.Exp(float64(v))
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// The figures are those of the plain formulas, however logits are cut.
func TestEvaluateFormulas(t *testing.T) {
	const vocab = 11
	text := []int32{1, 5, 0, 10, 3, 3, 7, 2, 9, 4, 1, 8}
	for _, pieces := range [][2]int{{11, 11}, {1, 3}, {4, 2}} {
		m, ref := random(vocab, 1, pieces[0]), random(vocab, 2, pieces[1])
		r, err := Evaluate(context.Background(), m, ref, text, Options{Window: 5, Prefix: []int32{6}})
		if err != nil {
			t.Fatal(err)
		}
		var nll, refNLL, kl, top, same, n float64
		for w := range 3 {
			ids := append([]int32{6}, text[4*w:4*w+4]...)
			for i := range 4 {
				q, p := softmax(m.rows[ids[i]]), softmax(ref.rows[ids[i]])
				nll -= math.Log(q[ids[i+1]])
				refNLL -= math.Log(p[ids[i+1]])
				var k float64
				best, bestRef := 0, 0
				for j := range p {
					k += p[j] * math.Log(p[j]/q[j])
					if q[j] > q[best] {
						best = j
					}
					if p[j] > p[bestRef] {
						bestRef = j
					}
				}
				kl += k
				top = max(top, k)
				if best == bestRef {
					same++
				}
				n++
			}
		}
		a := r.Against
		for name, v := range map[string][2]float64{
			"perplexity": {r.Perplexity, math.Exp(nll / n)}, "reference": {a.Perplexity, math.Exp(refNLL / n)},
			"KL": {a.KL, kl / n}, "largest KL": {a.KLMax, top}, "top-1": {a.Top1, same / n}, "delta": {a.Delta, (nll - refNLL) / n},
		} {
			if math.Abs(v[0]-v[1]) > 1e-9*(1+math.Abs(v[1])) {
				t.Errorf("pieces %v: %s is %v, want %v", pieces, name, v[0], v[1])
			}
		}
		if r.Positions != 12 || r.Windows != 3 || !(a.DeltaError > 0) {
			t.Errorf("%+v %+v", r, a)
		}
	}
}

// A model has kept all of itself.
func TestEvaluateSelf(t *testing.T) {
	m := random(30, 3, 7)
	r, err := Evaluate(context.Background(), m, m, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, Options{Window: 4})
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Against; math.Abs(a.KL) > 1e-14 || a.Top1 != 1 || a.Delta != 0 {
		t.Errorf("%+v", *a)
	}
}

func TestEvaluateErrors(t *testing.T) {
	m := random(5, 1, 5)
	nan := random(5, 1, 5)
	nan.rows[1][3] = float32(math.NaN())
	for _, tt := range []struct {
		m, ref Model
		text   []int32
		o      Options
		want   string
	}{
		{m, nil, []int32{1, 2}, Options{Window: 3}, "fidelity: the text has 2 tokens, a window takes 3 (give a longer text, or a smaller window)"},
		{m, nil, []int32{1, 2}, Options{Window: 2, Prefix: []int32{0, 0}}, "fidelity: windows of 2 tokens have no room for a text"},
		{m, nil, []int32{1, 7}, Options{Window: 2}, "fidelity: window 0: token 1 is 7, the vocabulary has 5"},
		{m, random(6, 1, 6), []int32{1, 2}, Options{Window: 2}, "fidelity: the vocabulary has 5 tokens, that of the reference 6"},
		{nan, nil, []int32{1, 2}, Options{Window: 2}, "fidelity: window 0: logits are not finite"},
	} {
		if _, err := Evaluate(context.Background(), tt.m, tt.ref, tt.text, tt.o); !strings.HasPrefix(fmt.Sprint(err), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}
