package parity

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity/reference"
)

// openReference opens the drafter's checkpoint for the reference: with decoded
// weights where the bundle has compressed ones, which it compares with the
// stored ones. The result is nil without a checkpoint.
func (v *drafterCheck) openReference(ctx context.Context, target *reference.Model) (*reference.DraftSource, error) {
	pkg, err := mlpackage.Read(filepath.Join(v.rep.Bundle, v.c.File), mlpackage.ReadOptions{NoVerify: true})
	if err != nil {
		return nil, fmt.Errorf("parity: %w", err)
	}
	v.closers = append(v.closers, pkg.Close)
	if v.o.Checkpoint == "" {
		return nil, weightsOf(pkg.Program, 0, func(w stored) error {
			if isConstexpr(w.op) {
				return fmt.Errorf("parity: the weights of %s are compressed, which makes another drafter of it than the recorded one: name the checkpoint as well (--checkpoint DIR), of which the weights are to be judged", v.rep.Bundle)
			}
			return nil
		})
	}
	config, err := os.ReadFile(filepath.Join(v.o.Checkpoint, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("parity: %w", err)
	}
	ck, err := checkpoint.Open(v.o.Checkpoint)
	if err != nil {
		return nil, err
	}
	v.closers = append(v.closers, ck.Close)
	codes := &decodedSource{Source: ck, weights: map[string]*decodedWeight{}}
	take := codes.taker()
	if err := weightsOf(pkg.Program, 0, func(w stored) error {
		_, err := take(w, v.c.Drafter)
		return err
	}); err != nil {
		return nil, err
	}
	var src reference.Source = ck
	if len(codes.weights) > 0 {
		v.compressed = true
		if err := v.result("codes", "").codes(ctx, codes, spreadsErrors(filepath.Join(v.rep.Bundle, chunking.DrafterFile))); err != nil {
			return nil, err
		}
		// A compressed head is no longer the table that the host looks rows up in.
		if w := codes.weights["embed_tokens.weight"]; w != nil && v.c.Drafter == models.MTPModules {
			codes.untie(w, "embed_tokens.weight")
			if config, err = untied(config); err != nil {
				return nil, err
			}
		}
		src = codes
	}
	do := reference.DraftOptions{SkipAnchor: v.c.Reading == models.ReadMasks}
	if target != nil {
		do.TargetLayers = target.Config().Layers
	}
	if v.c.Drafter == models.Eagle3 && target == nil {
		do.Taps = v.c.Target.Taps // nothing else says which
	}
	d, err := reference.NewDraftSource(src, config, do)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, v.o.Checkpoint)
	}
	return d, nil
}

// expectGolden reads the recording. Compression makes another drafter: the
// reference with the decoded weights then answers to the recorded states.
func (v *drafterCheck) expectGolden(ref *reference.DraftSource) error {
	d, err := engine.OpenDrafter(v.rep.Bundle, engine.Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	if v.golden, err = readDraftGolden(v.o.Golden, v.c, d.TargetIDs()); err != nil {
		return err
	}
	source := v.o.Golden
	if v.compressed {
		source = "reference with the bundle's decoded weights, on the states of " + source
		s, err := v.session(ref)
		if err != nil {
			return err
		}
		if err := v.answer(s); err != nil {
			return err
		}
	}
	v.rep.Reference = append(v.rep.Reference, source)
	return nil
}

// answer replaces what was recorded by what s says, and counts what differs.
func (v *drafterCheck) answer(s drafter.Session) error {
	for i := range v.golden {
		r := &v.golden[i]
		if err := s.Commit(r.rows); err != nil {
			return err
		}
		got, err := s.Draft(r.next, len(r.want.Tokens))
		if err != nil {
			return err
		}
		for j := range got.Logits {
			got.Logits[j] = slices.Clone(got.Logits[j])
		}
		got.Tokens = slices.Clone(got.Tokens)
		for j, id := range got.Tokens {
			v.recorded++
			if id != r.want.Tokens[j] {
				v.changed += len(got.Tokens) - j // the rest is another chain
				v.recorded += len(got.Tokens) - j - 1
				break
			}
		}
		r.want, r.columns = got, nil
	}
	return nil
}
