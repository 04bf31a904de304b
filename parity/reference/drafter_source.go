package reference

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/drafter"
)

// DraftOptions settle what a drafter's files leave open.
type DraftOptions struct {
	TargetLayers int   // layers of the target: an EAGLE-3 head's taps follow from it
	Taps         []int // instead of the rule; nil: by the rule
	// SkipAnchor reads a block drafter's slots as guesses for their own
	// positions, the anchor's not at all.
	SkipAnchor bool
	// ShortBlocks runs a block drafter's blocks no longer than the drafts that
	// are wanted: its slots see each other, so that this gives other numbers.
	ShortBlocks bool
}

// DraftSource is the checkpoint of a speculative drafter of any architecture.
type DraftSource struct {
	src    Source
	close  func() error
	needs  drafter.Needs
	embeds bool // has embeddings of its own
	begin  func(drafter.Embedder) drafter.Session
	own    *Drafter // the Gemma 4 assistant
}

// OpenDraftSource reads the checkpoint directory of a drafter. The caller
// closes it.
func OpenDraftSource(dir string, o DraftOptions) (*DraftSource, error) {
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	d, err := NewDraftSource(c, config, o)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%w (in %s)", err, dir)
	}
	d.close = c.Close
	return d, nil
}

// NewDraftSource makes a drafter from tensors and the bytes of config.json. MTP
// modules whose tie_word_embeddings is false have a head of their own,
// lm_head.weight [vocab, hidden].
func NewDraftSource(src Source, config []byte, o DraftOptions) (*DraftSource, error) {
	d := &DraftSource{src: src}
	if err := d.open(config, o); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *DraftSource) open(config []byte, o DraftOptions) error {
	var head struct{ Architectures []string }
	if err := json.Unmarshal(config, &head); err != nil || len(head.Architectures) != 1 {
		return fmt.Errorf("reference: config.json: architectures: want one name, got %q", head.Architectures)
	}
	switch head.Architectures[0] {
	case drafterArchitecture:
		return d.openAssistant(config)
	case "LlamaForCausalLMEagle3", "LlamaForCausalLM":
		return d.openEagle3(config, o)
	case "MtpStack":
		return d.openMTP(config)
	case "Gemma4DSparkModel":
		return d.openDSpark(config, o)
	}
	return fmt.Errorf("reference: config.json: architectures: %q is not a drafter that is supported", head.Architectures[0])
}

// Needs is what the drafter reads of its target.
func (d *DraftSource) Needs() drafter.Needs { return d.needs }

// Close releases the checkpoint that OpenDraftSource opened.
func (d *DraftSource) Close() error {
	if d.close == nil {
		return nil
	}
	return d.close()
}

// NewSession starts at position 0. target gives the embeddings of drafters that
// have none of their own.
func (d *DraftSource) NewSession(target drafter.Embedder) (drafter.Session, error) {
	if target == nil && !d.embeds {
		return nil, fmt.Errorf("reference: the drafter takes the embeddings of its target: give it")
	}
	return d.begin(target), nil
}

// checkDrafterTensors is checkTensors for tensors that are not those of a
// decoder; integers are of any integer type, optional ones may be missing.
func checkDrafterTensors(src Source, want map[string][]int, integers, optional []string) error {
	for name, shape := range want {
		t, ok := src.Tensor(name)
		if !ok {
			if slices.Contains(optional, name) {
				continue
			}
			return fmt.Errorf("reference: tensor %q is missing", name)
		}
		if err := checkShape(t, shape); err != nil {
			return err
		}
		switch t.DType() {
		case checkpoint.F64, checkpoint.F32, checkpoint.F16, checkpoint.BF16:
			if !slices.Contains(integers, name) {
				continue
			}
		case checkpoint.Bool, checkpoint.U8, checkpoint.I32, checkpoint.I64:
			if slices.Contains(integers, name) {
				continue
			}
		}
		return fmt.Errorf("reference: tensor %q: dtype %v does not suit it", name, t.DType())
	}
	for _, name := range src.Names() {
		if _, ok := want[name]; !ok {
			return fmt.Errorf("reference: tensor %q: nothing in config.json makes use of it", name)
		}
	}
	return nil
}

// Embedder is the model's table of embeddings as drafters take it.
func (m *Model) Embedder() drafter.Embedder { return embedder{m} }

type embedder struct{ m *Model }

func (e embedder) Embed(dst []float32, id int32) error {
	row, err := e.m.Embed(id)
	if err == nil && len(row) != len(dst) {
		err = fmt.Errorf("reference: an embedding has %d elements, not %d", len(row), len(dst))
	}
	copy(dst, row)
	return err
}
