package models

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mil"
)

// The kinds of drafters: DrafterConfig.Drafter.
const (
	Gemma4Assistant = "gemma4-assistant" // reads the target's keys and values
	Eagle3          = "eagle3"           // one layer over three taps
	MTPModules      = "mtp-modules"      // a layer a draft over the last hidden state
	DSpark          = "dspark"           // a block of drafts at once over taps
)

// Readings of a block drafter's slots, which have the same tensors: the output
// of the anchor's own slot is the first draft, or it is not read.
const (
	ReadAnchor = "anchor" // slot j guesses the token after position start+j
	ReadMasks  = "masks"  // slot j guesses the token at position start+j; slot 0 is not read
)

// DrafterConfig is a drafter's configuration in normal form. Config describes
// its own layers; Vocab is the target's vocabulary.
type DrafterConfig struct {
	Config
	Drafter      string
	TargetHidden int    // width of the target's residual stream
	TargetLayers int    // 0: not stated
	Taps         []int  // layers after which the target's stream is read; -1 is the embedding
	Norm         string // "pre", "post": the hidden state it reads of the target; "": none
	DraftVocab   int    // rows of the head

	Clusters, TopClusters int // of the vocabulary, and of them with logits; 0: all tokens

	Block      int    // slots of a block drafter
	MaskToken  int    // what stands in all but the first
	Reading    string // ReadAnchor or ReadMasks
	Markov     int    // rank of the bigram head; 0: none
	Confidence bool
	// ConfidenceMarkov feeds the confidence head the row of the token before.
	ConfidenceMarkov bool
}

// DrafterChoices settle what a drafter's files leave open.
type DrafterChoices struct {
	TargetLayers int    // layers of the target; 0: unknown
	Taps         []int  // nil: by the rule of the architecture
	Reading      string // "": as the architecture says
}

// Drafter is a drafter's checkpoint matched with its architecture.
type Drafter struct {
	m     Model
	cfg   DrafterConfig
	ids   []int32 // target ids of the draft vocabulary; nil: the same
	order []int32 // tokens by cluster; nil without clusters
}

// drafterSpec is one entry of the list of drafter architectures.
type drafterSpec struct {
	class, kind, modelType string
	read                   func(*object, *DrafterConfig, DrafterChoices)
}

var drafterSpecs = []drafterSpec{
	{"Gemma4AssistantForCausalLM", Gemma4Assistant, "gemma4_assistant", readGemma4Assistant},
	{"LlamaForCausalLMEagle3", Eagle3, "llama", readEagle3},
	{"MtpStack", MTPModules, "mtp_modules", readMTPModules},
	{"Gemma4DSparkModel", DSpark, "gemma4_text", readDSpark},
}

// IsDrafter reports whether a config.json is that of a drafter, known or not.
func IsDrafter(config []byte) bool {
	var c struct {
		Architectures []string `json:"architectures"`
		DraftVocab    int      `json:"draft_vocab_size"`
	}
	if json.Unmarshal(config, &c) != nil || len(c.Architectures) != 1 {
		return false
	}
	a := c.Architectures[0]
	return c.DraftVocab > 0 || slices.ContainsFunc(drafterSpecs, func(s drafterSpec) bool { return s.class == a }) ||
		slices.ContainsFunc([]string{"Eagle3", "DSpark", "DFlash", "Assistant", "Mtp", "MTP"}, func(s string) bool { return strings.Contains(a, s) })
}

// ParseDrafterConfig reads a drafter's config.json.
func ParseDrafterConfig(r io.Reader, choices DrafterChoices, ignore ...string) (*DrafterConfig, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("models: config.json: %w", err)
	}
	o, err := newObject("config.json", data)
	if err != nil {
		return nil, err
	}
	spec, err := drafterArchitecture(o)
	if err != nil {
		return nil, err
	}
	o.is(spec.modelType)
	c := &DrafterConfig{Drafter: spec.kind}
	c.Architecture, c.ModelType, c.BOS, c.EmbedScale = spec.kind, spec.modelType, -1, 1
	if spec.read(o, c, choices); o.err == nil {
		o.unread(ignore)
	}
	if o.err != nil {
		return nil, o.err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("models: %s: %w", o.name, err)
	}
	if err := c.checkTaps(); err != nil {
		return nil, fmt.Errorf("models: %s: %w", o.name, err)
	}
	return c, nil
}

func drafterArchitecture(o *object) (drafterSpec, error) {
	var names, classes []string
	for _, s := range drafterSpecs {
		names = append(names, s.class)
	}
	if raw, ok := o.m["architectures"]; !ok || json.Unmarshal(raw, &classes) != nil || len(classes) != 1 {
		return drafterSpec{}, fmt.Errorf("models: %s: \"architectures\" must name one class (known drafters: %s)", o.name, strings.Join(names, ", "))
	}
	class := classes[0]
	if _, eagle := o.m["draft_vocab_size"]; eagle && class == "LlamaForCausalLM" {
		class = "LlamaForCausalLMEagle3" // as its authors publish it
	}
	for _, s := range drafterSpecs {
		if s.class == class {
			return s, nil
		}
	}
	if strings.Contains(class, "DFlash") {
		return drafterSpec{}, fmt.Errorf("models: %s: architecture %q does not settle which token a slot guesses: DFlash and DSpark checkpoints have the same tensors, and their slots are read one apart (convert a Gemma4DSparkModel, with reading %q or %q)", o.name, class, ReadAnchor, ReadMasks)
	}
	return drafterSpec{}, fmt.Errorf("models: %s: drafter architecture %q is not supported (known: %s)", o.name, class, strings.Join(names, ", "))
}

// checkTaps finds taps that no target can have.
func (c *DrafterConfig) checkTaps() error {
	for i, l := range c.Taps {
		switch {
		case l < -1 || c.TargetLayers > 0 && l >= c.TargetLayers:
			return fmt.Errorf("tap %d reads layer %d of a target of %d layers (wrong tap layers?)", i, l, c.TargetLayers)
		case c.TargetLayers > 0 && l == c.TargetLayers-1:
			return fmt.Errorf("tap %d reads layer %d, the target's last, whose output most runtimes only know after the final norm (wrong tap layers?)", i, l)
		case slices.Contains(c.Taps[:i], l):
			return fmt.Errorf("taps %v name layer %d twice", c.Taps, l)
		}
	}
	return nil
}

// NewDrafter reads config.json and checks that the tensors of src are exactly
// those which the architecture needs. head, if not nil, is the target's table
// of embeddings, for drafters whose head it is and that do not store it.
func NewDrafter(config io.Reader, src checkpoint.Source, choices DrafterChoices, head checkpoint.Tensor, ignore ...string) (*Drafter, error) {
	data, err := io.ReadAll(config)
	if err != nil {
		return nil, fmt.Errorf("models: config.json: %w", err)
	}
	cfg, err := ParseDrafterConfig(bytes.NewReader(data), choices, ignore...)
	if err != nil {
		return nil, err
	}
	d := &Drafter{m: Model{cfg: cfg.Config, src: src, consts: map[string]mil.Const{}}, cfg: *cfg}
	if _, own := src.Tensor(embedTable); !own && head != nil && cfg.Drafter == MTPModules {
		d.m.src = &withTensor{src, checkpoint.Rename(head, embedTable)}
	}
	want, ints, optional := d.expected()
	if err := d.m.coverWith(want, ints, optional); err != nil {
		return nil, err
	}
	if d.cfg.Drafter == Eagle3 {
		err = d.readVocabulary()
	} else if d.cfg.Clusters > 0 {
		err = d.readOrder()
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// withTensor adds a tensor to a source.
type withTensor struct {
	checkpoint.Source
	more checkpoint.Tensor
}

func (w *withTensor) Names() []string {
	return append(slices.Clone(w.Source.Names()), w.more.Name())
}

func (w *withTensor) Tensor(name string) (checkpoint.Tensor, bool) {
	if name == w.more.Name() {
		return w.more, true
	}
	return w.Source.Tensor(name)
}

// Names of tensors that drafters keep without a prefix.
const (
	embedTable = "embed_tokens.weight"
	headTable  = "lm_head.weight"
	fcWeight   = "fc.weight"
)

// Config returns the normalised configuration.
func (d *Drafter) Config() *DrafterConfig { return &d.cfg }

// Weights reports every tensor of the checkpoint: used, or waived and why.
func (d *Drafter) Weights() []WeightUse { return d.m.uses }

// Source gives the tensors that the drafter was matched with.
func (d *Drafter) Source() checkpoint.Source { return d.m.src }

// Embedding is the drafter's own table of input embeddings, nil if it takes
// those of its target.
func (d *Drafter) Embedding() checkpoint.Tensor {
	if d.cfg.Drafter == Gemma4Assistant {
		return nil // its table is the head's
	}
	if t, ok := d.m.src.Tensor(embedTable); ok {
		return t
	}
	return nil
}

// TargetIDs are the target's ids of the draft vocabulary, nil if it is the
// target's.
func (d *Drafter) TargetIDs() []int32 { return d.ids }

// expected lists the tensors of the architecture with their shapes, which of
// them hold integers or booleans, and which may be absent.
func (d *Drafter) expected() (want map[string][]int, ints, optional []string) {
	switch d.cfg.Drafter {
	case Gemma4Assistant:
		return d.gemma4Tensors()
	case Eagle3:
		return d.eagle3Tensors()
	case MTPModules:
		return d.mtpTensors()
	}
	return d.dsparkTensors()
}

// DrafterFunction is what a function of a drafter does.
type DrafterFunction string

// The functions of drafters.
const (
	DraftOnce   DrafterFunction = "draft"   // one step, or one block
	Extend      DrafterFunction = "extend"  // takes tokens that are part of the text
	ModuleStep  DrafterFunction = "module"  // a module of MTP modules, on T tokens
	ContextRows DrafterFunction = "context" // keys and values of the text for a block drafter
)

// DrafterPart is one function of a drafter to build.
type DrafterPart struct {
	Function        DrafterFunction
	Module          int // of ModuleStep
	T               int // tokens a call
	Inputs, Outputs []Port
	// FlatTable keeps a table of rows that are chosen by cluster as one matrix,
	// [vocab, hidden], as compressed weights must be. Otherwise it is stored
	// cluster by cluster, so that what is read of a cluster is one slice.
	FlatTable bool
}

// Build adds the ops of a function to b, in fp32.
func (d *Drafter) Build(b *mil.Builder, part DrafterPart) error {
	g := &draftGraph{graph: &graph{Builder: b, m: &d.m, c: &d.m.cfg, part: Part{T: part.T, Inputs: part.Inputs, Outputs: part.Outputs},
		seen: map[string]*mil.Value{}, kv: map[Kind]*kvStack{}, rope: map[Kind]ropeRows{}, mask: map[Kind]*mil.Value{}, layers: map[int]*layerKV{}},
		d: d, dc: &d.cfg, flat: part.FlatTable, in: map[string]*mil.Value{}}
	for _, p := range part.Inputs {
		g.in[p.Name] = b.Input(p.Name, mil.T(floatAs32(p.DType), p.Shape...))
	}
	for _, k := range d.cfg.AllKinds() {
		g.mask[k] = g.take(Mask, k)
		g.rope[k] = ropeRows{g.take(RopeCos, k), g.take(RopeSin, k)}
	}
	switch d.cfg.Drafter {
	case Gemma4Assistant:
		g.gemma4Assistant()
	case Eagle3:
		g.eagle3(part.Function)
	case MTPModules:
		g.mtpModule(part.Module)
	case DSpark:
		if part.Function == ContextRows {
			g.dsparkContext()
		} else {
			g.dsparkBlock()
		}
	}
	return b.Err()
}

// draftGraph builds one function of a drafter.
type draftGraph struct {
	*graph
	d    *Drafter
	dc   *DrafterConfig
	flat bool // DrafterPart.FlatTable
	in   map[string]*mil.Value
}

// take returns the input with the role, nil if the part has none.
func (g *draftGraph) take(r Role, k Kind) *mil.Value { return g.input(g.in, r, k) }

// need is take for inputs without which nothing can be built.
func (g *draftGraph) need(r Role, k Kind) *mil.Value {
	v := g.take(r, k)
	if v == nil {
		g.Fail(fmt.Errorf("models: %s: the part has no input with the role %s", g.dc.Drafter, r))
		return g.Const("missing", mil.NewFloats(mil.Float32, []int{1}, 0))
	}
	return v
}

// give makes v the output with the role, if the part has one.
func (g *draftGraph) give(r Role, k Kind, v *mil.Value) {
	if p, ok := find(g.part.Outputs, r, k); ok {
		g.Output(p.Name, v)
	}
}

// heads projects x, [1,T,·], splits it into heads, norms each if norm names the
// gains, and returns [1,count,T,D].
func (g *draftGraph) heads(n, weight, norm string, x *mil.Value, count, D int) *mil.Value {
	v := g.linear(n+"_proj", weight, x, false, false)
	return g.split(n, norm, v, count, D)
}

// split is heads without the projection.
func (g *draftGraph) split(n, norm string, v *mil.Value, count, D int) *mil.Value {
	v = g.Op("reshape", n+"_heads", mil.Args{"x": v, "shape": []int{1, axis(v, 1), count, D}})
	if norm != "" {
		v = g.rms(n+"_norm", norm, v, false, false)
	}
	return g.Op("transpose", n+"_t", mil.Args{"x": v, "perm": []int{0, 2, 1, 3}})
}

// mix attends with q, [1,heads,T,D], and projects the result. merged says that
// the cache holds all there is to see.
func (g *draftGraph) mix(n, weight string, k Kind, q *mil.Value, kv *layerKV, merged bool) *mil.Value {
	d, T := g.c.Dims(k), g.part.T
	if g.c.AttnScale != 1 {
		q = g.Op("mul", n+"q_scaled", mil.Args{"x": q, "y": g.c.AttnScale})
	}
	rows := g.c.Heads / d.KVHeads * T
	q = g.Op("reshape", n+"q_rows", mil.Args{"x": q, "shape": []int{1, d.KVHeads, rows, d.HeadDim}})
	var o *mil.Value
	if merged {
		o = g.attendMerged(n, k, q, kv, rows)
	} else {
		o = g.attend(n, k, q, kv, rows)
	}
	o = g.Op("reshape", n+"mix_heads", mil.Args{"x": o, "shape": []int{1, g.c.Heads, T, d.HeadDim}})
	o = g.Op("transpose", n+"mix_t", mil.Args{"x": o, "perm": []int{0, 2, 1, 3}})
	o = g.Op("reshape", n+"mix_flat", mil.Args{"x": o, "shape": []int{1, T, g.c.Heads * d.HeadDim}})
	return g.linear(n+"attn_out", weight, o, false, false)
}

// gated is the MLP whose tensors begin with p.
func (g *draftGraph) gated(n, p string, x *mil.Value) *mil.Value {
	gate := g.activation(n+"gate_act", g.linear(n+"gate", p+"gate_proj", x, false, false))
	up := g.linear(n+"up", p+"up_proj", x, false, false)
	return g.linear(n+"mlp_out", p+"down_proj", g.Op("mul", n+"mlp_act", mil.Args{"x": gate, "y": up}), false, false)
}

// argmax is the first of the largest of the last axis.
func (g *draftGraph) argmax(name string, x *mil.Value) *mil.Value {
	return g.Op("reduce_argmax", name, mil.Args{"x": x, "axis": -1, "keep_dims": false, "output_dtype": "int32"})
}

// cacheOf is the part of a stacked cache that belongs to layer i.
func (g *draftGraph) cacheOf(n string, k Kind, i int) (keys, values *mil.Value) {
	keys, values = g.need(KeyCache, k), g.need(ValueCache, k)
	if axis(keys, 0) == 1 {
		return keys, values
	}
	return g.sliceAxis(n+"k_cache", keys, 0, i, i+1), g.sliceAxis(n+"v_cache", values, 0, i, i+1)
}

// layerTensors adds the tensors of a decoder layer whose names begin with p. in
// is the width that attention reads.
func layerTensors(e map[string][]int, p, attn string, c *Config, k Kind, in int, norms ...string) {
	d := c.Dims(k)
	e[p+attn+"q_proj.weight"] = []int{c.Heads * d.HeadDim, in}
	e[p+attn+"k_proj.weight"] = []int{d.KVHeads * d.HeadDim, in}
	e[p+attn+"v_proj.weight"] = []int{d.KVHeads * d.HeadDim, in}
	e[p+attn+"o_proj.weight"] = []int{c.Hidden, c.Heads * d.HeadDim}
	e[p+"mlp.gate_proj.weight"] = []int{c.Intermediate, c.Hidden}
	e[p+"mlp.up_proj.weight"] = []int{c.Intermediate, c.Hidden}
	e[p+"mlp.down_proj.weight"] = []int{c.Hidden, c.Intermediate}
	for _, n := range norms {
		e[p+n+".weight"] = []int{c.Hidden}
	}
	if c.QKNorm {
		e[p+attn+"q_norm.weight"] = []int{d.HeadDim}
		e[p+attn+"k_norm.weight"] = []int{d.HeadDim}
	}
}
