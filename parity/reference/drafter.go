package reference

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
)

// Drafter is the multi-token-prediction head of a Gemma 4 model
// (Gemma4AssistantForCausalLM), ready to run: a small decoder that guesses the
// target's next tokens from the target's own state. Like a Model it holds no
// weights.
type Drafter struct {
	config DrafterConfig
	src    Source
	order  []int32 // token ids, cluster by cluster; nil without clusters
	closer func() error
}

// OpenDrafter reads the checkpoint directory dir. The caller closes the
// drafter.
func OpenDrafter(dir string) (*Drafter, error) {
	configJSON, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	d, err := NewDrafter(c, configJSON)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%w (in %s)", err, dir)
	}
	d.closer = c.Close
	return d, nil
}

// NewDrafter makes a drafter from tensors and the bytes of config.json.
func NewDrafter(src Source, configJSON []byte) (*Drafter, error) {
	config, err := ParseDrafterConfig(configJSON)
	if err != nil {
		return nil, err
	}
	used, unused := config.tensors()
	if err := checkTensors(src, used, unused); err != nil {
		return nil, err
	}
	d := &Drafter{config: config, src: src}
	if config.Centroids > 0 {
		if d.order, err = readTokenOrder(src, config.Vocab); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// readTokenOrder reads a permutation of the vocabulary.
func readTokenOrder(src Source, vocab int) ([]int32, error) {
	t, _ := src.Tensor(tokenOrderName)
	ids, err := checkpoint.ReadInts(t)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	order, seen := make([]int32, vocab), make([]bool, vocab)
	for i, id := range ids {
		if id < 0 || id >= int64(vocab) || seen[id] {
			return nil, fmt.Errorf("reference: tensor %q: element %d is %d: not every token of the vocabulary of %d occurs once", tokenOrderName, i, id, vocab)
		}
		order[i], seen[id] = int32(id), true
	}
	return order, nil
}

// Config returns the drafter's normalised configuration.
func (d *Drafter) Config() DrafterConfig { return d.config }

// Close releases the checkpoint that OpenDrafter opened.
func (d *Drafter) Close() error {
	if d.closer == nil {
		return nil
	}
	return d.closer()
}

// DraftRound is what a drafter gets from its target after the target has
// processed N tokens. All steps of a round see the same.
type DraftRound struct {
	// N is the number of processed tokens, and the position of every step.
	N int
	// KV are the target's keys and values by kind: Result.KV. Rows from N on are
	// not read.
	KV map[LayerKind]KV

	shift int // set by tests: moves the position
}

// DraftStep is one step of a round.
type DraftStep struct {
	Input         []float32 // [2·target hidden]: scaled target embedding, then hidden state
	PreProjection []float32 // [hidden]
	Hidden        []float32 // [hidden] residual stream before the final norm
	Norm          []float32 // [hidden] after it
	// Logits [vocab]. With clusters, tokens outside the selected ones have the
	// smallest selected logit − 1.
	Logits    []float32
	Clusters  []int     // selected ones, best first
	Projected []float32 // [target hidden]: hidden state of the next step's input
	Token     int32     // the draft: argmax of Logits
}

// Embed returns the scaled embedding of a token, as it enters the residual
// stream.
func (m *Model) Embed(id int32) ([]float32, error) {
	p := m.pass(fastDot)
	p.x = NewMatrix(1, m.config.Hidden)
	p.embed([]int32{id})
	return p.x.Data, p.err
}

// Draft runs a whole round greedily: next is the token after the N processed
// ones, hidden the target's state of the last of these after its final norm
// (row N−1 of Result.Norm). tap may be nil; it sees the intermediates of each
// step in turn.
func (d *Drafter) Draft(ctx context.Context, target *Model, round DraftRound, next int32, hidden []float32, steps int, tap Tap) ([]DraftStep, error) {
	if h := target.config.Hidden; h != d.config.TargetHidden {
		return nil, fmt.Errorf("reference: the drafter belongs to a target with hidden_size %d, got %d", d.config.TargetHidden, h)
	}
	var out []DraftStep
	for range steps {
		embedding, err := target.Embed(next)
		if err != nil {
			return nil, err
		}
		s, err := d.Step(ctx, round, slices.Concat(embedding, hidden), tap)
		if err != nil {
			return nil, err
		}
		out = append(out, *s)
		next, hidden = s.Token, s.Projected
	}
	return out, nil
}

// Step runs one step on input [2·target hidden]: the scaled embedding of the
// token before the drafted one, then a hidden state: the target's after its
// final norm in the first step of a round, DraftStep.Projected later on. tap
// may be nil.
func (d *Drafter) Step(ctx context.Context, round DraftRound, input []float32, tap Tap) (*DraftStep, error) {
	return d.step(ctx, round, input, tap, nil, fastDot)
}

func (d *Drafter) step(ctx context.Context, round DraftRound, input []float32, tap Tap, scores func(int, float32, float32), dot dotFunc) (*DraftStep, error) {
	c := &d.config
	if len(input) != 2*c.TargetHidden {
		return nil, fmt.Errorf("reference: a draft step takes %d values (embedding and hidden state), got %d", 2*c.TargetHidden, len(input))
	}
	if err := d.checkRound(round); err != nil {
		return nil, err
	}
	if tap == nil {
		tap = func(string, *Matrix) {}
	}
	p := &pass{config: c.Config, weights: weightReader{src: d.src}, dot: dot, tap: tap, kinds: round.KV, scores: scores}
	p.begin(round.N+round.shift, 1)
	p.span = func(kind LayerKind) func(int) (int, int) {
		first := 0
		if kind == SlidingAttention {
			// One row more than the window: transformers counts it from a
			// query that stands on the last row, and inclusively.
			first = max(0, round.N-c.Window-1)
		}
		return func(int) (int, int) { return first, round.N }
	}
	in := &Matrix{Rows: 1, Cols: len(input), Data: input}
	p.tap("inputs_embeds", in)
	p.project(p.x, in, preProjectionName, 0, nil)
	p.tap("pre_projection", p.x)
	s := &DraftStep{Input: slices.Clone(input), PreProjection: slices.Clone(p.x.Data)}
	if err := p.layers(ctx, func(*Matrix) {}); err != nil {
		return nil, err
	}
	s.Hidden, s.Norm = slices.Clone(p.x.Data), slices.Clone(p.norm.Data)
	d.logits(p, s)
	projected := NewMatrix(1, c.TargetHidden)
	p.project(projected, p.norm, postProjectionName, 0, nil)
	if p.err != nil {
		return nil, p.err
	}
	p.tap("projected", projected)
	s.Projected = projected.Data
	return s, nil
}

// checkRound compares the target's keys and values with what the layers read.
func (d *Drafter) checkRound(round DraftRound) error {
	c := &d.config
	if round.N < 1 {
		return fmt.Errorf("reference: a draft round follows %d tokens (want at least one)", round.N)
	}
	for i, kind := range c.Kinds {
		l := c.Layer(i)
		kv, ok := round.KV[kind]
		if !ok || kv.K == nil || kv.V == nil {
			return fmt.Errorf("reference: layers.%d: the target delivers no keys and values of a %v layer", i, kind)
		}
		for _, m := range []*Matrix{kv.K, kv.V} {
			if m.Cols != l.KVHeads*l.HeadDim || m.Rows < round.N {
				return fmt.Errorf("reference: layers.%d: the target's %v rows are [%d %d], want at least %d of %d = %d·%d",
					i, kind, m.Rows, m.Cols, round.N, l.KVHeads*l.HeadDim, l.KVHeads, l.HeadDim)
			}
		}
	}
	return nil
}

// logits fills in Logits, Clusters and Token from p.norm.
func (d *Drafter) logits(p *pass, s *DraftStep) {
	c := &d.config
	name := embedName
	if !c.TiedHead {
		name = headName
	}
	logits := NewMatrix(1, c.Vocab)
	if c.Centroids == 0 {
		const step = 1 << 14
		for first := 0; first < c.Vocab; first += step {
			tile := NewMatrix(1, min(step, c.Vocab-first))
			p.project(tile, p.norm, name, first, nil)
			copy(logits.Data[first:], tile.Data)
		}
	} else {
		scores := NewMatrix(1, c.Centroids)
		p.project(scores, p.norm, centroidsName, 0, nil)
		p.tap("centroid_scores", scores)
		best := make([]int, c.Centroids)
		for i := range best {
			best[i] = i
		}
		slices.SortStableFunc(best, func(a, b int) int { return cmp.Compare(scores.Data[b], scores.Data[a]) })
		s.Clusters = best[:c.TopCentroids]

		size := c.Vocab / c.Centroids
		row := make([]float32, c.Hidden)
		smallest := float32(math.Inf(1))
		var selected []int32
		for _, cluster := range s.Clusters {
			selected = append(selected, d.order[cluster*size:(cluster+1)*size]...)
		}
		values := make([]float32, len(selected))
		for i, id := range selected {
			if p.err == nil {
				p.fail(p.weights.read(name, row, int(id)*c.Hidden))
			}
			values[i] = float32(p.dot(p.norm.Data, row))
			smallest = min(smallest, values[i])
		}
		for i := range logits.Data {
			logits.Data[i] = smallest - 1
		}
		for i, id := range selected {
			logits.Data[id] = values[i]
		}
	}
	if p.err != nil {
		return
	}
	p.tap("logits", logits)
	s.Logits = logits.Data
	for i, x := range s.Logits {
		if x > s.Logits[s.Token] {
			s.Token = int32(i)
		}
	}
}
