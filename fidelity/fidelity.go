package fidelity

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Model computes logits.
type Model interface {
	// Logits feeds a sequence from its start and emits logits in pieces: the
	// entries of the vocabulary from first on, after token row of ids. Pieces
	// of a row come in order; rows are those of ids but the last. Rows may come
	// from several goroutines, one row from one at a time. emit keeps no logits.
	Logits(ctx context.Context, ids []int32, emit func(row, first int, logits []float32) error) error
	// Vocab is the number of logits of a row.
	Vocab() int
}

// Options configures Evaluate.
type Options struct {
	Window int // tokens a window; 0: DefaultWindow
	Limit  int // windows; 0: all
	// Prefix starts every window, such as <bos>, and takes room in it.
	Prefix []int32
	// Progress, if not nil, is told of windows done.
	Progress func(stage string, done, total int64)
}

// DefaultWindow is the number of tokens of a window.
const DefaultWindow = 512

// Report is what Evaluate measured.
type Report struct {
	Windows    int     `json:"windows"`
	Window     int     `json:"window_tokens"`
	Positions  int     `json:"positions"`
	NLL        float64 `json:"mean_nll"`
	Perplexity float64 `json:"perplexity"`

	Against *Against `json:"against,omitempty"` // nil without a reference
}

// Against compares with a reference.
type Against struct {
	Perplexity float64 `json:"reference_perplexity"`
	KL         float64 `json:"kl_mean"`
	KLError    float64 `json:"kl_standard_error"`
	KL99       float64 `json:"kl_99"`
	KL999      float64 `json:"kl_99_9"`
	KLMax      float64 `json:"kl_max"`
	Top1       float64 `json:"top1_agreement"` // fraction of positions
	Delta      float64 `json:"delta_ln_perplexity"`
	DeltaError float64 `json:"delta_standard_error"`
	// Positions are divergences by position, which Pair takes.
	Positions []float64 `json:"-"`
}

// Evaluate feeds a text to m, and to ref unless that is nil.
func Evaluate(ctx context.Context, m, ref Model, text []int32, o Options) (*Report, error) {
	windows, err := o.cut(text)
	if err != nil {
		return nil, err
	}
	if ref != nil && ref.Vocab() != m.Vocab() {
		return nil, fmt.Errorf("fidelity: the vocabulary has %d tokens, that of the reference %d", m.Vocab(), ref.Vocab())
	}
	r := &Report{Windows: len(windows), Window: len(windows[0])}
	var all []position
	d, fast := m.(direct)
	var r2 *direct
	if ref != nil {
		other, ok := ref.(direct)
		r2, fast = &other, fast && ok
	}
	step := 1
	if fast {
		step = max(1, batchTokens/len(windows[0]))
	}
	for i := 0; i < len(windows); i += step {
		some := windows[i:min(i+step, len(windows))]
		var p []position
		if fast {
			p, err = d.together(ctx, r2, some)
		} else {
			p, err = window(ctx, m, ref, some[0])
		}
		if err != nil {
			return nil, fmt.Errorf("fidelity: window %d: %w", i, err)
		}
		all = append(all, p...)
		if o.Progress != nil {
			o.Progress("evaluating", int64(i+len(some)), int64(len(windows)))
		}
	}
	r.Positions = len(all)
	r.NLL, _ = meanError(all, func(p *position) float64 { return p.nll })
	r.Perplexity = math.Exp(r.NLL)
	if ref == nil {
		return r, nil
	}
	a := &Against{}
	nll, _ := meanError(all, func(p *position) float64 { return p.refNLL })
	a.Perplexity = math.Exp(nll)
	a.KL, a.KLError = meanError(all, func(p *position) float64 { return p.kl })
	a.Delta, a.DeltaError = meanError(all, func(p *position) float64 { return p.nll - p.refNLL })
	a.Top1, _ = meanError(all, func(p *position) float64 {
		if p.same {
			return 1
		}
		return 0
	})
	kl := make([]float64, len(all))
	for i := range all {
		kl[i] = all[i].kl
	}
	a.Positions = slices.Clone(kl)
	slices.Sort(kl)
	a.KL99, a.KL999, a.KLMax = quantile(kl, 0.99), quantile(kl, 0.999), kl[len(kl)-1]
	r.Against = a
	return r, nil
}

// batchTokens is how many tokens checkpoints are fed at once.
const batchTokens = 4096

// cut divides a text into windows; what is left over is dropped.
func (o Options) cut(text []int32) ([][]int32, error) {
	size := o.Window
	if size == 0 {
		size = DefaultWindow
	}
	body := size - len(o.Prefix)
	if size < 2 || body < 1 {
		return nil, fmt.Errorf("fidelity: windows of %d tokens have no room for a text", size)
	}
	n := len(text) / body
	if n == 0 {
		return nil, fmt.Errorf("fidelity: the text has %d tokens, a window takes %d (give a longer text, or a smaller window)", len(text), body)
	}
	if o.Limit > 0 {
		n = min(n, o.Limit)
	}
	windows := make([][]int32, n)
	for i := range windows {
		windows[i] = append(slices.Clone(o.Prefix), text[i*body:(i+1)*body]...)
	}
	return windows, nil
}

// position is what is measured at one of them.
type position struct {
	nll, refNLL, kl float64
	same            bool
}

// window evaluates one window.
func window(ctx context.Context, m, ref Model, ids []int32) ([]position, error) {
	vocab := m.Vocab()
	rows := len(ids) - 1
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("token %d is %d, the vocabulary has %d (another model's tokenizer?)", i, id, vocab)
		}
	}
	var want []float32
	if ref != nil {
		want = make([]float32, rows*vocab)
		err := ref.Logits(ctx, ids, func(row, first int, logits []float32) error {
			copy(want[row*vocab+first:(row+1)*vocab], logits)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reference: %w", err)
		}
	}
	got := make([]accumulator, rows)
	err := m.Logits(ctx, ids, func(row, first int, logits []float32) error {
		a := &got[row]
		if first != a.seen {
			return fmt.Errorf("row %d: logits from %d on, want from %d on", row, first, a.seen)
		}
		var w []float32
		if want != nil {
			w = want[row*vocab+first:][:len(logits)]
		}
		return a.add(logits, w, int(ids[row+1]))
	})
	if err != nil {
		return nil, err
	}
	out := make([]position, rows)
	for i := range out {
		if got[i].seen != vocab {
			return nil, fmt.Errorf("row %d: %d logits of %d", i, got[i].seen, vocab)
		}
		out[i] = got[i].position(want != nil)
	}
	return out, nil
}

// accumulator takes in a row of logits piece by piece.
type accumulator struct {
	seen     int
	own, ref expSum
	cross    float64 // Σ exp(reference − its peak)·(reference − own)
}

// expSum is Σ exp(x − peak), with where the peak is and the target's logit.
type expSum struct {
	peak, sum float64
	at        int
	target    float64
}

func (a *accumulator) add(own, ref []float32, target int) error {
	if a.seen == 0 {
		a.own.peak, a.ref.peak = math.Inf(-1), math.Inf(-1)
	}
	a.own.add(own, a.seen, target)
	if ref != nil {
		before := a.ref.peak
		a.ref.add(ref, a.seen, target)
		if a.ref.peak != before && a.cross != 0 {
			a.cross *= math.Exp(before - a.ref.peak)
		}
		var cross float64
		for i, x := range ref {
			if d := float64(x) - float64(own[i]); d != 0 {
				cross += math.Exp(float64(x)-a.ref.peak) * d
			}
		}
		a.cross += cross
	}
	a.seen += len(own)
	if s := a.own.sum + a.ref.sum; s-s != 0 {
		return fmt.Errorf("logits are not finite")
	}
	return nil
}

func (s *expSum) add(x []float32, first, target int) {
	peak := s.peak
	for i, v := range x {
		if float64(v) > peak {
			peak, s.at = float64(v), first+i
		}
	}
	if s.sum != 0 {
		s.sum *= math.Exp(s.peak - peak)
	}
	s.peak = peak
	for _, v := range x {
		s.sum += math.Exp(float64(v) - peak)
	}
	if i := target - first; i >= 0 && i < len(x) {
		s.target = float64(x[i])
	}
}

func (s *expSum) log() float64 { return s.peak + math.Log(s.sum) }

func (a *accumulator) position(compare bool) position {
	p := position{nll: a.own.log() - a.own.target}
	if compare {
		p.refNLL = a.ref.log() - a.ref.target
		p.kl = a.cross/a.ref.sum - a.ref.log() + a.own.log()
		p.same = a.own.at == a.ref.at
	}
	return p
}

// meanError is the mean of f and its standard error.
func meanError(all []position, f func(*position) float64) (mean, err float64) {
	n := float64(len(all))
	for i := range all {
		mean += f(&all[i])
	}
	mean /= n
	var s float64
	for i := range all {
		d := f(&all[i]) - mean
		s += d * d
	}
	if n < 2 {
		return mean, 0
	}
	return mean, math.Sqrt(s / (n - 1) / n)
}

// quantile of sorted values, the nearest rank above.
func quantile(sorted []float64, q float64) float64 {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}
