package replay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/quant"
)

// SmallModel is the kind of ordinary models.
const SmallModel = "model"

// OpenOptions settle what a drafter's files leave open.
type OpenOptions struct {
	// Target gives embeddings to drafters without their own, and settles tapped
	// layers. It may be nil for drafters that need neither.
	Target  *decoder.Decoder
	Taps    []int
	Reading string // models.ReadAnchor or ReadMasks
}

// Drafter is an opened checkpoint of a drafter. It holds no weights.
type Drafter struct {
	kind    string
	config  []byte
	own     checkpoint.Source // what the checkpoint stores
	c       *models.DrafterConfig
	ids     []int32 // of the draft vocabulary; nil: the target's
	order   []int32 // tokens by cluster
	src     checkpoint.Source
	target  *decoder.Decoder
	model   *decoder.Decoder // SmallModel
	needs   drafter.Needs
	modules []Module
	closer  func() error
}

// Module is a matrix of a drafter that can be stored in another format.
type Module struct {
	Path   string // of the tensor, without .weight
	Class  quant.Class
	Layer  int // −1 outside of layers
	Tensor checkpoint.Tensor
	reads  func(gamma int) float64
}

// Reads is how often a round of gamma drafts reads the matrix: 0 where single rows
// are gathered, gamma where every draft reads all of it. Rows that were
// accepted in the last round are taken to run together with the first draft.
func (m *Module) Reads(gamma int) float64 { return m.reads(gamma) }

// Open reads the checkpoint directory of a drafter or model. The caller closes it.
func Open(dir string, o OpenOptions) (*Drafter, error) {
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	ck, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	d, err := New(ck, config, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("replay: %s: %w", dir, err), ck.Close())
	}
	d.closer = ck.Close
	return d, nil
}

// New is Open for tensors and the bytes of config.json.
func New(src checkpoint.Source, config []byte, o OpenOptions) (*Drafter, error) {
	d := &Drafter{config: config, own: src, src: src, target: o.Target}
	if !models.IsDrafter(config) {
		var err error
		d.kind = SmallModel
		d.own = checkpoint.TextView(src)
		if d.model, err = decoder.New(d.own, config); err != nil {
			return nil, err
		}
		d.src = d.own
		d.needs = drafter.Needs{Vocab: d.model.Config().Vocab}
		d.list()
		return d, nil
	}
	choices := models.DrafterChoices{Taps: o.Taps, Reading: o.Reading}
	var table checkpoint.Tensor
	if o.Target != nil {
		choices.TargetLayers = o.Target.Config().Layers
		table, _ = o.Target.Source().Tensor(decoder.EmbedModule + ".weight")
	}
	m, err := models.NewDrafter(bytes.NewReader(config), src, choices, table)
	if err != nil {
		return nil, err
	}
	d.c, d.kind, d.ids, d.src = m.Config(), m.Config().Drafter, m.TargetIDs(), m.Source()
	if d.c.Clusters > 0 {
		if d.order, err = readOrder(src); err != nil {
			return nil, err
		}
	}
	_, has := d.src.Tensor("embed_tokens.weight")
	if o.Target == nil && (d.kind == models.Gemma4Assistant || d.kind == models.Eagle3 && !has) {
		return nil, fmt.Errorf("the drafter takes the embeddings of its target (give the target)")
	}
	d.needs = drafter.Needs{Hidden: d.c.TargetHidden, Vocab: d.c.Vocab, Layers: d.c.TargetLayers, Taps: d.c.Taps, Norm: d.c.Norm}
	if d.kind == models.Gemma4Assistant {
		d.needs.Keys = map[string]drafter.Shape{}
		for _, k := range d.c.AllKinds() {
			x := d.c.Dims(k)
			d.needs.Keys[string(k)] = drafter.Shape{Heads: x.KVHeads, HeadDim: x.HeadDim}
		}
	}
	d.list()
	return d, nil
}

// readOrder reads the tokens of a clustered vocabulary, which models has checked.
func readOrder(src checkpoint.Source) ([]int32, error) {
	t, ok := src.Tensor("masked_embedding.token_ordering")
	if !ok {
		return nil, fmt.Errorf("tensor masked_embedding.token_ordering is missing")
	}
	ids, err := checkpoint.ReadInts(t)
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out, nil
}

// Close releases the checkpoint that Open opened.
func (d *Drafter) Close() error {
	if d.closer == nil {
		return nil
	}
	return d.closer()
}

// Kind is SmallModel or a kind of models.
func (d *Drafter) Kind() string { return d.kind }

// Needs is what the drafter reads of its target.
func (d *Drafter) Needs() drafter.Needs { return d.needs }

// Config is config.json.
func (d *Drafter) Config() []byte { return d.config }

// Source has the tensors of the checkpoint.
func (d *Drafter) Source() checkpoint.Source { return d.own }

// Modules are the matrices that can be stored in other formats.
func (d *Drafter) Modules() []Module { return d.modules }

// MaxDraft is the largest number of slots.
func (d *Drafter) MaxDraft() int {
	switch d.kind {
	case models.MTPModules:
		return d.c.Layers
	case models.DSpark:
		if d.c.Reading == models.ReadMasks {
			return d.c.Block - 1
		}
		return d.c.Block
	}
	return 64
}

// TargetIDs are the target's ids of the drafter's vocabulary, nil if they are the
// same.
func (d *Drafter) TargetIDs() []int32 { return d.ids }

// Layers is the number of layers.
func (d *Drafter) Layers() int {
	if d.model != nil {
		return d.model.Config().Layers
	}
	return d.c.Layers
}

// list finds the modules.
func (d *Drafter) list() {
	for _, name := range d.own.Names() {
		t, _ := d.own.Tensor(name)
		path, ok := strings.CutSuffix(name, ".weight")
		switch t.DType() {
		case checkpoint.BF16, checkpoint.F16, checkpoint.F32:
		default:
			continue
		}
		// The confidence head decides how many drafts are verified: it stays.
		if !ok || len(t.Shape()) != 2 || strings.HasPrefix(name, "confidence_head.") {
			continue
		}
		class, layer := quant.Classify(name)
		if rest, ok := strings.CutPrefix(name, "modules_list."); ok {
			layer, _ = strconv.Atoi(rest[:strings.IndexByte(rest, '.')])
		}
		d.modules = append(d.modules, Module{path, class, layer, t, d.reads(path)})
	}
	slices.SortFunc(d.modules, func(a, b Module) int { return natural(a.Path, b.Path) })
}

// natural compares names, numbers in them by value.
func natural(a, b string) int {
	for x, y := strings.Split(a, "."), strings.Split(b, "."); ; x, y = x[1:], y[1:] {
		if len(x) == 0 || len(y) == 0 {
			return cmp.Compare(len(x), len(y))
		}
		m, err1 := strconv.Atoi(x[0])
		n, err2 := strconv.Atoi(y[0])
		if err1 == nil && err2 == nil && m != n {
			return cmp.Compare(m, n)
		}
		if c := cmp.Compare(x[0], y[0]); c != 0 {
			return c
		}
	}
}

// reads says how often a round reads a matrix.
func (d *Drafter) reads(path string) func(gamma int) float64 {
	each := func(gamma int) float64 { return float64(gamma) }
	once := func(int) float64 { return 1 }
	never := func(int) float64 { return 0 }
	switch d.kind {
	case SmallModel:
		if path == decoder.EmbedModule && d.model.Head() != path || strings.HasSuffix(path, "embed_tokens_per_layer") {
			return never
		}
		return each
	case models.Gemma4Assistant:
		table := path == "model.embed_tokens" || path == "lm_head"
		if head := "model.embed_tokens"; table && !d.c.Tied && path == head {
			return never
		}
		if table && d.c.Clusters > 0 {
			return func(gamma int) float64 { return float64(gamma*d.c.TopClusters) / float64(d.c.Clusters) }
		}
		return each
	case models.MTPModules:
		if path == "embed_tokens" {
			return each // it is the head
		}
		// Module k runs if there is a draft of slot k.
		k := 0
		if rest, ok := strings.CutPrefix(path, "modules_list."); ok {
			k, _ = strconv.Atoi(rest[:strings.IndexByte(rest, '.')])
		}
		return func(gamma int) float64 {
			if k < gamma {
				return 1
			}
			return 0
		}
	case models.Eagle3:
		switch path {
		case "embed_tokens":
			return never
		case "fc":
			return once
		}
		return each
	}
	switch { // DSpark
	case path == "embed_tokens", path == "markov_head.markov_w1":
		return never
	case path == "markov_head.markov_w2":
		return each
	case strings.HasSuffix(path, "self_attn.k_proj"):
		return func(int) float64 { return 2 } // for the text, and for the block
	}
	return once
}

// Options of Run.
type Options struct {
	Weights decoder.Weights // other matrices of modules, by path; nil: none
	// Only names the module that Weights replaces, if it is one alone: what comes
	// before it need not run again.
	Only string
	Tap  func(decoder.Input) error
}

// Run is a drafter over some texts, to be run again and again with other weights.
type Run struct {
	d      *Drafter
	texts  []drafter.Rows
	bases  [][]int
	slots  int
	before map[int]*decoder.State // SmallModel: what each layer starts from
}

// Over prepares slots drafts behind every base of every text. bases[i] are those of
// texts[i], ascending; the text must have base + slots tokens.
func (d *Drafter) Over(texts []drafter.Rows, bases [][]int, slots int) (*Run, error) {
	if slots < 1 || slots > d.MaxDraft() {
		return nil, fmt.Errorf("replay: %d drafts asked of a drafter that gives 1 to %d", slots, d.MaxDraft())
	}
	if len(texts) == 0 || len(texts) != len(bases) {
		return nil, fmt.Errorf("replay: %d texts and bases of %d", len(texts), len(bases))
	}
	for i, t := range texts {
		if err := d.needs.Check(t, 0); err != nil {
			return nil, fmt.Errorf("replay: text %d: %w", i, err)
		}
		for k, n := range bases[i] {
			if n < 1 || n+slots > len(t.Tokens) || k > 0 && n <= bases[i][k-1] {
				return nil, fmt.Errorf("replay: text %d of %d tokens: no %d drafts can follow the first %d tokens", i, len(t.Tokens), slots, n)
			}
		}
	}
	return &Run{d, texts, bases, slots, map[int]*decoder.State{}}, nil
}

// Draft runs the drafter.
func (r *Run) Draft(ctx context.Context, o Options) (*Draft, error) {
	d := r.d
	if d.kind == SmallModel {
		return r.model(ctx, o)
	}
	c := &calc{src: d.src, weights: o.Weights, tap: o.Tap, eps: float32(d.c.Eps), act: activation(d.c.Activation)}
	var out *Draft
	switch d.kind {
	case models.Gemma4Assistant:
		out = d.assistant(ctx, c, r.texts, r.bases, r.slots)
	case models.MTPModules:
		out = d.mtp(c, r.texts, r.bases, r.slots)
	case models.Eagle3:
		out = d.eagle3(ctx, c, r.texts, r.bases, r.slots)
	default:
		out = d.dspark(c, r.texts, r.bases, r.slots)
	}
	if c.err != nil {
		return nil, c.err
	}
	return out, ctx.Err()
}

// embed writes the scaled embeddings of the target.
func (d *Drafter) embed(ctx context.Context, c *calc, ids []int32) decoder.Matrix {
	if c.err != nil {
		return decoder.NewMatrix(len(ids), d.needs.Hidden)
	}
	s, err := d.target.Embed(ctx, [][]int32{ids}, nil)
	if err != nil {
		c.err = err
		return decoder.NewMatrix(len(ids), d.needs.Hidden)
	}
	return s.Hidden
}
