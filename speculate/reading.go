package speculate

import (
	"context"
	"errors"
	"fmt"

	"github.com/smelt-go/smelt/models"
)

// readings measures a block drafter both ways, if that is what its files leave
// open; nil if it is not.
func (w *Workshop) readings(ctx context.Context, spec string) error {
	rates := map[string]float64{}
	for _, reading := range []string{models.ReadAnchor, models.ReadMasks} {
		v := &Workshop{Gamma: w.Gamma, Context: w.Context, Mode: w.Mode, Reading: reading}
		rate, err := v.rate(ctx, w.target, spec, w.Sample)
		if err := errors.Join(err, v.Close()); err != nil {
			return nil
		}
		rates[reading] = rate
	}
	a, m := rates[models.ReadAnchor], rates[models.ReadMasks]
	hint := fmt.Sprintf("say --reading %s if that is not chance", models.ReadAnchor)
	switch {
	case a == m:
		hint = fmt.Sprintf("which settles nothing: is it a drafter of %s?", w.target)
	case m > a:
		hint = fmt.Sprintf("say --reading %s if that is not chance", models.ReadMasks)
	}
	return fmt.Errorf("speculate: the files of %s do not settle which token a slot guesses; accepted on %d prompts: %s %.1f %%, %s %.1f %% (%s)",
		spec, len(w.Sample), models.ReadAnchor, 100*a, models.ReadMasks, 100*m, hint)
}

// rate is the live acceptance of a drafter.
func (w *Workshop) rate(ctx context.Context, target, spec string, prompts []Prompt) (float64, error) {
	if err := w.Target(target); err != nil {
		return 0, err
	}
	arm, err := w.Arm(ctx, spec)
	if err != nil {
		return 0, err
	}
	var records []Record
	for _, p := range prompts {
		r, err := Run(ctx, arm.Target, arm.Source, p.IDs, Options{Gamma: min(w.Gamma, arm.Source.MaxDraft()), MaxTokens: 32, IgnoreEOS: true})
		if err != nil {
			return 0, err
		}
		records = append(records, *r)
	}
	return share(records), nil
}
