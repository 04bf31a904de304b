package drafter

import "fmt"

// Tags of Needs.Norm.
const (
	Pre  = "pre"  // the residual stream before the final norm
	Post = "post" // after it
)

// Shape is the shape of the keys and values of one layer.
type Shape struct {
	Heads, HeadDim int
}

// Needs is what a drafter reads of its target.
type Needs struct {
	Hidden int // width of the target's residual stream
	Vocab  int // of the target
	// Layers is the number of layers that the drafter knows its target to
	// have; 0 if it does not say.
	Layers int
	// Taps are the layers after which the residual stream is read, raw, in this
	// order; -1 is the scaled embedding.
	Taps []int
	// Norm asks for the hidden state of every token: Pre or Post. "": not read.
	Norm string
	// Keys asks for keys and values of the last layer of a kind ("full",
	// "sliding") that has its own.
	Keys map[string]Shape
}

// Rows are what the target computed for n consecutive tokens of the text.
// Matrices are row by row; those that the drafter does not need may be nil.
type Rows struct {
	Position     int                  // of the first
	Tokens       []int32              // that were fed
	Taps         []float32            // [n, len(Needs.Taps)·Hidden], side by side
	Hidden       []float32            // [n, Hidden], with the norm of Needs.Norm
	Norm         string               // the tag of Hidden
	Keys, Values map[string][]float32 // by kind, [n, Heads·HeadDim]; keys rotated
}

// Draft is a guess at the tokens after the one that the target chose.
type Draft struct {
	Tokens []int32
	// Logits of each token over the target's vocabulary; -Inf for tokens that
	// the drafter cannot say. Tokens[j] is the first of the largest of
	// Logits[j]. Valid until the next call on the session.
	Logits [][]float32
	// Confidence, of drafters that have it, estimates for each token how likely
	// it is to be accepted if those before it are.
	Confidence []float32
}

// Session is a drafter at work on one text.
type Session interface {
	Needs() Needs
	// Position is the number of rows committed.
	Position() int
	// MaxDraft is the largest number of tokens that Draft can give.
	MaxDraft() int
	// Commit takes what the target computed for the next tokens of the text.
	Commit(rows Rows) error
	// Draft guesses n tokens after next, which stands at Position. It changes
	// nothing: drafts of the same position with other tokens may follow.
	Draft(next int32, n int) (Draft, error)
	// Reset forgets the text.
	Reset()
}

// Embedder is a target's table of embeddings. Embed writes the row of a token
// as it enters the residual stream, scaled where the target scales it.
type Embedder interface {
	Embed(dst []float32, id int32) error
}

// Check compares rows with what is needed.
func (n Needs) Check(r Rows, position int) error {
	k := len(r.Tokens)
	if k == 0 {
		return fmt.Errorf("drafter: rows of no tokens")
	}
	if r.Position != position {
		return fmt.Errorf("drafter: rows start at position %d, want %d: every token of the text, once and in order", r.Position, position)
	}
	for _, id := range r.Tokens {
		if id < 0 || n.Vocab > 0 && int(id) >= n.Vocab {
			return fmt.Errorf("drafter: token %d is outside the vocabulary of %d", id, n.Vocab)
		}
	}
	if want := k * len(n.Taps) * n.Hidden; len(n.Taps) > 0 && len(r.Taps) != want {
		return fmt.Errorf("drafter: taps of %d tokens have %d elements, want %d: layers %v of a target with hidden_size %d", k, len(r.Taps), want, n.Taps, n.Hidden)
	}
	if n.Norm != "" {
		if r.Norm != n.Norm {
			return fmt.Errorf("drafter: hidden states are %q-norm, the drafter reads %q-norm ones", r.Norm, n.Norm)
		}
		if len(r.Hidden) != k*n.Hidden {
			return fmt.Errorf("drafter: hidden states of %d tokens have %d elements, want %d of each", k, len(r.Hidden), n.Hidden)
		}
	}
	for kind, s := range n.Keys {
		want := k * s.Heads * s.HeadDim
		if len(r.Keys[kind]) != want || len(r.Values[kind]) != want {
			return fmt.Errorf("drafter: %s keys and values of %d tokens have %d and %d elements, want %d: %d heads of %d",
				kind, k, len(r.Keys[kind]), len(r.Values[kind]), want, s.Heads, s.HeadDim)
		}
	}
	return nil
}

// Target is what a target says of itself, to be held against Needs.
type Target struct {
	Name          string
	Hidden, Vocab int
	Layers        int
	Keys          map[string]Shape // of the last layer of each kind that has its own
}

// Fits reports why a drafter cannot belong to a target, nil if nothing speaks
// against it.
func (n Needs) Fits(t Target) error {
	switch {
	case n.Hidden != t.Hidden:
		return fmt.Errorf("drafter: it reads a hidden width of %d, the target %s has hidden_size %d (another target?)", n.Hidden, t.Name, t.Hidden)
	case n.Vocab != 0 && n.Vocab != t.Vocab:
		return fmt.Errorf("drafter: its vocabulary has %d tokens, that of the target %s %d (another target?)", n.Vocab, t.Name, t.Vocab)
	case n.Layers != 0 && n.Layers != t.Layers:
		return fmt.Errorf("drafter: it was made for a target of %d layers, %s has %d", n.Layers, t.Name, t.Layers)
	}
	for _, l := range n.Taps {
		// The last layer's output is only known normed in most runtimes, and no
		// drafter was trained on it.
		if l < -1 || l >= t.Layers-1 {
			return fmt.Errorf("drafter: it taps layer %d of taps %v; the target %s has layers 0 to %d, of which the last cannot be tapped (wrong tap layers?)", l, n.Taps, t.Name, t.Layers-1)
		}
	}
	for kind, s := range n.Keys {
		if got, ok := t.Keys[kind]; !ok || got != s {
			return fmt.Errorf("drafter: it reads %s keys and values of %d heads of %d, the target %s has %d of %d", kind, s.Heads, s.HeadDim, t.Name, got.Heads, got.HeadDim)
		}
	}
	return nil
}
