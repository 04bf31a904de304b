package sensitivity

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
	"github.com/smelt-go/smelt/replay"
)

// draftAtoms are some tokens of a drafter's vocabulary that stand for all at one
// place: likely ones of the drafter or its target for themselves, draws from the
// rest for their equal share of it.
type draftAtoms struct {
	atoms            // weights and logits are those of the drafter as it is
	target []float64 // the target's probabilities; tokens that the drafter lacks are missing
	kept   float64   // Σ min(p, q)
	agrees bool      // both have the same first choice
}

// compare is the divergence from the drafter as it is of logits z at the atoms,
// and Σ min(p, q) of them.
func (a *draftAtoms) compare(z []float32) (kl, kept float64) {
	kl, peak, sum := divergence(a.weight, a.logit, z)
	for i, v := range z {
		q := float64(a.weight[i]*math.Exp(float64(v)-float64(a.logit[i])-peak)) / sum
		kept += min(q, a.target[i])
	}
	return kl, kept
}

// draftScratch is the memory of a goroutine.
type draftScratch struct {
	scratch replay.Scratch
	z       []float32
}

// reference reduces the distributions of drafter and target at every place.
func (s *draftSweep) reference() error {
	draft, err := s.run.Draft(s.ctx, replay.Options{})
	if err != nil {
		return err
	}
	type at struct{ text, base int }
	var places []at
	for i, bs := range s.bases {
		for _, n := range bs {
			places = append(places, at{i, n})
		}
	}
	t := s.in.target.Decoder
	head, err := t.NewHead(nil)
	if err != nil {
		return err
	}
	width, vocab := t.Config().Hidden, t.Config().Vocab
	if n := s.d.Needs().Vocab; n != vocab {
		return fmt.Errorf("sensitivity: the drafter's vocabulary has %d tokens, the target's %d", n, vocab)
	}
	const block = 16 // rows whose logits are in memory together
	x := decoder.NewMatrix(block, width)
	p := make([]float32, block*vocab)
	for slot := range draft.Slots {
		ref := make([]draftAtoms, draft.Rows)
		for from := 0; from < draft.Rows; from += block {
			n := min(block, draft.Rows-from)
			part := decoder.Matrix{Rows: n, Cols: width, Data: x.Data[:n*width]}
			for i, pl := range places[from : from+n] {
				copy(part.Row(i), s.in.final[pl.text][(pl.base+slot)*width:])
			}
			err := head.Logits(s.ctx, part, func(row, first int, l []float32) error {
				copy(p[row*vocab+first:], l)
				return nil
			})
			if err != nil {
				return err
			}
			err = parallel.Each(n, func(w *draftScratch, i int) error {
				w.z = grown(w.z, draft.Vocab())
				if err := draft.Logits(&w.scratch, slot, from+i, nil, w.z); err != nil {
					return err
				}
				a, err := reduceDraft(p[i*vocab:(i+1)*vocab], w.z, s.d.TargetIDs(), (slot+1)*draft.Rows+from+i, s.o.Seed)
				if err != nil {
					return fmt.Errorf("sensitivity: base %d, draft %d: %w", from+i, slot, err)
				}
				// As candidates will be asked, so that a drafter that is left as it
				// is does exactly nothing.
				a.logit = make([]float32, len(a.ids))
				if err := draft.Logits(&w.scratch, slot, from+i, a.ids, a.logit); err != nil {
					return err
				}
				_, a.kept = a.compare(a.logit)
				ref[from+i] = a
				return nil
			})
			if err != nil {
				return err
			}
		}
		s.ref = append(s.ref, ref)
		kept, agreed := 0.0, 0.0
		for _, a := range ref {
			kept += a.kept / float64(len(ref))
			if a.agrees {
				agreed += 1 / float64(len(ref))
			}
		}
		s.out.Drafter.Acceptance = append(s.out.Drafter.Acceptance, kept)
		s.out.Drafter.Agreement = append(s.out.Drafter.Agreement, agreed)
	}
	s.out.Drafter.Weights = weightsOf(s.out.Drafter.Acceptance)
	return nil
}

// softmaxOf are the probabilities of logits.
func softmaxOf(z []float32) ([]float64, error) {
	peak := float64(kernel.Max(z))
	p := make([]float64, len(z))
	var sum float64
	for i, v := range z {
		p[i] = math.Exp(float64(v) - peak)
		sum += p[i]
	}
	if sum-sum != 0 || sum == 0 {
		return nil, fmt.Errorf("logits are not finite")
	}
	for i := range p {
		p[i] /= sum
	}
	return p, nil
}

// reduceDraft makes atoms of the target's logits and the drafter's. ids are the
// target's of the drafter's tokens, nil if they are the same.
func reduceDraft(target, own []float32, ids []int32, row int, seed uint64) (draftAtoms, error) {
	var a draftAtoms
	q, err := softmaxOf(own)
	if err != nil {
		return a, fmt.Errorf("the drafter's %w", err)
	}
	all, err := softmaxOf(target)
	if err != nil {
		return a, fmt.Errorf("the target's %w", err)
	}
	p := all
	choice, id := kernel.ArgMax(target), kernel.ArgMax(own)
	if ids != nil {
		p = make([]float64, len(q))
		for i, t := range ids {
			p[i] = all[t]
		}
		id = int(ids[id])
	}
	a.agrees = choice == id
	var reachable, rest, sumP, sumQ float64
	for i := range q {
		reachable += p[i]
		if m := (p[i] + q[i]) / 2; len(q) > small && m < likely {
			rest += m
		}
	}
	// An atom that stands for c tokens like it has c times their probability.
	add := func(i int, c float64) {
		a.atoms.ids = append(a.atoms.ids, int32(i))
		a.weight, a.target = append(a.weight, c*q[i]), append(a.target, c*p[i])
		sumQ += c * q[i]
		sumP += c * p[i]
	}
	step := rest / draws
	next := rand.New(rand.NewPCG(seed, uint64(row))).Float64() * step
	var before float64
	for i := range q {
		m := (p[i] + q[i]) / 2
		if len(q) <= small || m >= likely {
			add(i, 1)
			continue
		}
		n := 0
		for before+m > next && step > 0 {
			next += step
			n++
		}
		before += m
		if n > 0 {
			add(i, float64(n)*step/m)
		}
	}
	for i := range a.weight {
		a.weight[i] /= sumQ
		if sumP > 0 {
			a.target[i] *= reachable / sumP
		}
	}
	return a, nil
}
