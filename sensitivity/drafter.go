package sensitivity

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/capture"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/replay"
)

// Drafting says of a drafter's map how it was measured: on states that its target
// had left on a text, the drafts of every base forced (see package replay).
type Drafting struct {
	Kind         string `json:"kind"` // of drafter: "model", "eagle3", …
	TargetSHA256 string `json:"target_sha256"`
	StatesSHA256 string `json:"states_sha256"` // of capture.json
	Gamma        int    `json:"gamma"`         // drafts a round
	Bases        int    `json:"bases"`         // places at which drafts begin
	// Acceptance is 1 − TV(p, q) by position, p the target's distribution and q
	// that of the drafter as it is: the probability that a draft drawn from q
	// survives if those before it did. Agreement is how often both have the same
	// first choice.
	Acceptance []float64 `json:"acceptance"`
	Agreement  []float64 `json:"agreement"`
	// Weights say what a unit of acceptance at a position is worth, in accepted of
	// drafted: Σ_{j≥i} Π_{k≤j,k≠i} acceptance_k / gamma.
	Weights []float64 `json:"weights"`
}

// Drafts are what a candidate does to drafts, by position.
type Drafts struct {
	KL      []float64 `json:"kl"` // of the draft distribution from that of the drafter as it is, in nats
	KLError []float64 `json:"kl_error"`
	// Loss is what 1 − TV(p, q) loses; below 0 it gains.
	Loss      []float64 `json:"acceptance_loss"`
	LossError []float64 `json:"acceptance_loss_error"`
	// Lost is Loss weighted with Drafting.Weights, base by base: accepted of
	// drafted that are lost.
	Lost      float64 `json:"lost"`
	LostError float64 `json:"lost_error"`
}

// weightsOf are the Weights of acceptances.
func weightsOf(a []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		for j := i; j < len(a); j++ {
			p := 1.0
			for k := 0; k <= j; k++ {
				if k != i {
					p *= a[k]
				}
			}
			out[i] += p / float64(len(a))
		}
	}
	return out
}

// DraftStates are what a drafter is measured on.
type DraftStates struct {
	rows   []drafter.Rows
	final  [][]float32 // the target's, post-norm, by text
	target *Model
	states *capture.States
}

// NewDraftStates reads captured states for a drafter. target is the model that was
// captured: its head says what the states predict, and nothing else of it runs.
// States of another model, without the taps, the norm or the keys that the drafter
// reads, or of another width are errors.
func NewDraftStates(d *replay.Drafter, states *capture.States, target *Model) (*DraftStates, error) {
	if states.Source != target.Source.SHA256 {
		return nil, fmt.Errorf("sensitivity: the states are those of another model (%.12s…) than %s (%.12s…) (capture again, or name the right target)", states.Source, target.Source.Name, target.Source.SHA256)
	}
	s := &DraftStates{target: target, states: states}
	var err error
	if s.rows, err = states.Rows(d.Needs()); err != nil {
		return nil, err
	}
	if s.final, err = states.Final(); err != nil {
		return nil, err
	}
	return s, nil
}

// DrafterOptions of MeasureDrafter.
type DrafterOptions struct {
	Gamma   int            // drafts a round; 0: 3, or as many as the drafter gives
	Every   int            // tokens from one base to the next; 0: 1
	Formats []quant.Format // candidates; formats that a tensor cannot have are left out for it
	Seed    uint64         // what is drawn from unlikely tokens
	Shard   *Shard
	Journal string // see Options

	Progress func(stage string, done, total int64)
	Warn     func(text string)
}

// MeasureDrafter finds what every candidate of every matrix of a drafter does to
// its drafts, without the target. Calibrated methods code with the inputs that
// modules have on these states.
func MeasureDrafter(ctx context.Context, d *replay.Drafter, name string, in *DraftStates, o DrafterOptions) (*Map, error) {
	s := &draftSweep{ctx: ctx, d: d, in: in, o: o}
	if err := s.prepare(name); err != nil {
		return nil, err
	}
	defer s.journal.close()
	for k, i := range s.mine {
		if !s.done[i] {
			if err := s.tensor(i); err != nil {
				return nil, err
			}
			if err := s.journal.add(s.tensors[i]); err != nil {
				return nil, err
			}
		}
		if o.Progress != nil {
			o.Progress("measuring", int64(k+1), int64(len(s.mine)))
		}
	}
	for _, i := range s.mine {
		s.out.Tensors = append(s.out.Tensors, s.tensors[i])
	}
	return s.out, s.out.Check()
}

// draftSweep is one run.
type draftSweep struct {
	ctx     context.Context
	d       *replay.Drafter
	in      *DraftStates
	o       DrafterOptions
	run     *replay.Run
	bases   [][]int
	rows    int            // bases of all texts
	ref     [][]draftAtoms // by slot and row
	out     *Map
	tensors []Tensor
	mine    []int
	done    map[int]bool
	journal *journal
	seen    *moduleInput // of the tensor that is being coded
}

// begin sets the places where drafts begin.
func (s *draftSweep) begin() error {
	o := &s.o
	if o.Gamma == 0 {
		o.Gamma = min(3, s.d.MaxDraft())
	}
	if o.Every == 0 {
		o.Every = 1
	}
	if o.Gamma < 0 || o.Gamma > s.d.MaxDraft() || o.Every < 0 {
		return fmt.Errorf("sensitivity: %d drafts a round, every %d tokens: the drafter gives 1 to %d", o.Gamma, o.Every, s.d.MaxDraft())
	}
	for _, r := range s.in.rows {
		s.bases = append(s.bases, replay.Every(len(r.Tokens), o.Gamma, o.Every))
		s.rows += len(s.bases[len(s.bases)-1])
	}
	if s.rows == 0 {
		return fmt.Errorf("sensitivity: sequences of %d tokens are too short for %d drafts (capture longer ones)", s.in.states.Tokens, o.Gamma)
	}
	var err error
	s.run, err = s.d.Over(s.in.rows, s.bases, o.Gamma)
	return err
}

func (s *draftSweep) prepare(name string) error {
	o := &s.o
	if len(o.Formats) == 0 {
		return fmt.Errorf("sensitivity: there is nothing to measure: no formats")
	}
	for i := range o.Formats {
		if o.Formats[i].Method == "" {
			o.Formats[i].Method = quant.RTN
		}
		if _, err := codecOf(o.Formats[i]); err != nil {
			return err
		}
		if slices.Contains(o.Formats[:i], o.Formats[i]) {
			return fmt.Errorf("sensitivity: candidate %s is given twice", Name(o.Formats[i]))
		}
	}
	if err := s.begin(); err != nil {
		return err
	}
	source, kept, err := s.source(name)
	if err != nil {
		return err
	}
	s.out = &Map{Schema: Schema, Estimator: KL, Source: source, Kernel: kernel.Level(), Shard: o.Shard, KeptBytes: kept.bytes, KeptParameters: kept.parameters,
		Calibration: &Calibration{SHA256: s.in.states.SHA256, Sequences: len(s.in.rows), Tokens: s.in.states.Tokens, Seed: o.Seed, Domains: map[string]int{}},
		Drafter:     &Drafting{Kind: s.d.Kind(), TargetSHA256: s.in.target.Source.SHA256, StatesSHA256: s.in.states.SHA256, Gamma: o.Gamma, Bases: s.rows}}
	s.candidates()
	if len(s.mine) == 0 {
		return fmt.Errorf("sensitivity: no tensor can have any of the formats (a group size that divides no matrix?)")
	}
	if err := s.share(); err != nil {
		return err
	}
	if err := s.reference(); err != nil {
		return err
	}
	header := *s.out
	for _, i := range s.mine {
		t := s.tensors[i]
		t.Candidates = slices.Clone(t.Candidates)
		header.Tensors = append(header.Tensors, t)
	}
	s.journal, s.done, err = openJournal(o.Journal, &header, s.tensors)
	return err
}

// keptSize is what is never coded.
type keptSize struct{ bytes, parameters int64 }

// source describes the checkpoint, and hashes it as Open does.
func (s *draftSweep) source(name string) (Source, keptSize, error) {
	out := Source{Name: filepath.Base(filepath.Clean(name)), Layers: s.d.Layers()}
	var kept keptSize
	var c struct {
		ModelType string `json:"model_type"`
	}
	if err := json.Unmarshal(s.d.Config(), &c); err != nil {
		return out, kept, fmt.Errorf("sensitivity: config.json: %w", err)
	}
	out.ModelType = c.ModelType
	h := sha256.New()
	h.Write(s.d.Config())
	coded := map[string]bool{}
	for _, m := range s.d.Modules() {
		coded[m.Path+".weight"] = true
	}
	for _, name := range s.d.Source().Names() {
		if err := s.ctx.Err(); err != nil {
			return out, kept, err
		}
		t, _ := s.d.Source().Tensor(name)
		fmt.Fprintf(h, "%s %v %v\n", name, t.DType(), t.Shape())
		n, b := int64(checkpoint.NumElements(t)), checkpoint.NumBytes(t)
		_ = binary.Write(h, binary.LittleEndian, n)
		if _, err := t.WriteTo(h); err != nil {
			return out, kept, fmt.Errorf("sensitivity: %w", err)
		}
		out.Parameters += n
		out.Bytes += b
		if !coded[name] {
			kept.parameters += n
			kept.bytes += b
		}
	}
	out.SHA256 = hex.EncodeToString(h.Sum(nil))
	return out, kept, nil
}

// candidates lists what every tensor can be stored as.
func (s *draftSweep) candidates() {
	l := lister{formats: s.o.Formats, warn: s.o.Warn, out: s.out}
	modules := s.d.Modules()
	for i := range modules {
		m := &modules[i]
		reads := m.Reads(s.o.Gamma)
		l.add(Tensor{Path: m.Path, Class: m.Class, Layer: m.Layer, Shape: slices.Clone(m.Tensor.Shape()),
			Parameters: int64(checkpoint.NumElements(m.Tensor)), Bytes: checkpoint.NumBytes(m.Tensor), Reads: &reads}, m.Tensor)
	}
	s.tensors, s.mine = l.finish()
}

// share keeps the tensors of this part.
func (s *draftSweep) share() error {
	sh := s.o.Shard
	if sh == nil {
		return nil
	}
	if sh.Count < 1 || sh.Index < 1 || sh.Index > sh.Count {
		return fmt.Errorf("sensitivity: shard %d of %d does not exist (want 1/n to n/n)", sh.Index, sh.Count)
	}
	if sh.Count > len(s.mine) {
		return fmt.Errorf("sensitivity: %d shards of %d tensors (choose fewer)", sh.Count, len(s.mine))
	}
	n := len(s.mine)
	s.mine = s.mine[(sh.Index-1)*n/sh.Count : sh.Index*n/sh.Count]
	return nil
}

// tensor measures all candidates of one tensor.
func (s *draftSweep) tensor(i int) error {
	m := s.d.Modules()[i]
	t := &s.tensors[i]
	for j := range t.Candidates {
		c := &t.Candidates[j]
		e, err := s.code(m, c.Format)
		if err != nil {
			return fmt.Errorf("sensitivity: %s: %s: %w", m.Path, Name(c.Format), err)
		}
		c.WeightError = e.stats.RelativeMSE()
		if e.stats.OutputEnergy > 0 {
			x := e.stats.OutputError / e.stats.OutputEnergy
			c.OutputError = &x
		}
		v, err := e.dense()
		if err != nil {
			return err
		}
		draft, err := s.run.Draft(s.ctx, replay.Options{Only: m.Path, Weights: func(path string) (checkpoint.Tensor, error) {
			if path == m.Path {
				return v, nil
			}
			return nil, nil
		}})
		if err != nil {
			return fmt.Errorf("sensitivity: %s: %w", m.Path, err)
		}
		if c.Draft, c.Damage, c.StandardError, err = s.compare(draft); err != nil {
			return fmt.Errorf("sensitivity: %s: %s: %w", m.Path, Name(c.Format), err)
		}
	}
	return nil
}

// compare measures drafts against those of the drafter as it is. Damage is KL,
// positions weighted as they count for acceptance.
func (s *draftSweep) compare(d *replay.Draft) (*Drafts, float64, float64, error) {
	out := &Drafts{}
	weights := s.out.Drafter.Weights
	var total float64
	for _, w := range weights {
		total += w
	}
	sumKL, sumLoss := make([]float64, d.Rows), make([]float64, d.Rows)
	for slot := range d.Slots {
		kl, loss := make([]float64, d.Rows), make([]float64, d.Rows)
		err := parallel.Each(d.Rows, func(w *draftScratch, row int) error {
			a := &s.ref[slot][row]
			w.z = grown(w.z, len(a.ids))
			if err := d.Logits(&w.scratch, slot, row, a.ids, w.z); err != nil {
				return err
			}
			var kept float64
			kl[row], kept = a.compare(w.z)
			loss[row] = a.kept - kept
			if kl[row]-kl[row] != 0 {
				return fmt.Errorf("the divergence of drafts is %v", kl[row])
			}
			return nil
		})
		if err != nil {
			return nil, 0, 0, err
		}
		m, e := meanError(kl)
		out.KL, out.KLError = append(out.KL, m), append(out.KLError, e)
		m, e = meanError(loss)
		out.Loss, out.LossError = append(out.Loss, m), append(out.LossError, e)
		for row := range kl {
			sumKL[row] += float64(kl[row] * weights[slot] / total)
			sumLoss[row] += float64(loss[row] * weights[slot])
		}
	}
	out.Lost, out.LostError = meanError(sumLoss)
	mean, se := meanError(sumKL)
	return out, mean, se, nil
}

// WithAcceptance is a drafter's map whose damages are accepted of drafted that are
// lost, by the expected acceptance 1 − TV. Gains, which are chance, count as 0.
func (m *Map) WithAcceptance() (*Map, error) {
	out := *m
	out.Tensors = slices.Clone(m.Tensors)
	for i := range out.Tensors {
		t := &out.Tensors[i]
		t.Candidates = slices.Clone(t.Candidates)
		for j := range t.Candidates {
			c := &t.Candidates[j]
			if c.Draft == nil {
				return nil, fmt.Errorf("sensitivity: %s: %s: acceptance was not measured (make the map with sensitivity --drafter)", t.Path, Name(c.Format))
			}
			c.Damage, c.StandardError = max(0, c.Draft.Lost), c.Draft.LostError
		}
	}
	return &out, out.Check()
}
