package sensitivity

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/quant"
)

// Recenter makes a map for a second round. around was measured around a recipe,
// first with all other tensors as they are. Damages become
//
//	share + around(candidate) − around(the recipe's own)
//
// where shares divide the measured damage of the whole recipe among tensors as
// first predicts. The sum over the recipe's own formats is then what was
// measured, and every single change from it costs what it was measured to cost
// there: what tensors do to each other is counted. Results below 0 become 0.
func Recenter(first, around *Map, r *quant.Recipe) (*Map, error) {
	if around.Base == "" {
		return nil, fmt.Errorf("sensitivity: the map was not measured around a recipe")
	}
	if first.Source.SHA256 != around.Source.SHA256 {
		return nil, fmt.Errorf("sensitivity: the maps are of different checkpoints: %s and %s", first.Source.Name, around.Source.Name)
	}
	total, err := first.Predict(r)
	if err != nil {
		return nil, err
	}
	formats, err := first.formats(r)
	if err != nil {
		return nil, err
	}
	out := *around
	out.Tensors = slices.Clone(around.Tensors)
	for i := range out.Tensors {
		t := &out.Tensors[i]
		k := slices.IndexFunc(first.Tensors, func(x Tensor) bool { return x.Path == t.Path })
		if k < 0 {
			return nil, fmt.Errorf("sensitivity: %s was not measured in the first round", t.Path)
		}
		share := around.BaseDamage / float64(len(out.Tensors))
		if f, ok := formats[t.Path]; ok && total > 0 {
			c := slices.IndexFunc(first.Tensors[k].Candidates, func(c Measurement) bool { return c.Format == f })
			share = around.BaseDamage * first.Tensors[k].Candidates[c].Damage / total
		}
		t.Candidates = slices.Clone(t.Candidates)
		for j := range t.Candidates {
			c := &t.Candidates[j]
			c.Damage = max(0, share+(c.Damage-around.BaseDamage))
		}
	}
	return &out, out.Check()
}
