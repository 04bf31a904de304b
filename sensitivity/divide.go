package sensitivity

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/quant"
)

// Divide makes one map of two that were measured differently: around a recipe, and
// singles, one tensor at a time with all others as they are. Figures of single
// changes around a recipe are uncertain, since they are small against what
// everything else does, but their sum over a class is right for the model as it
// will be stored. Figures of singles are exact, but leave out what layers make up
// for. So a class has in all what around says, in the format that singles measured,
// and its tensors have shares of it as singles say. Classes of one tensor stay as
// they are.
func Divide(around, singles *Map) (*Map, error) {
	if around.Base == "" || singles.Base != "" {
		return nil, fmt.Errorf("sensitivity: want a map that was measured around a recipe, and one of single tensors")
	}
	if around.Source.SHA256 != singles.Source.SHA256 {
		return nil, fmt.Errorf("sensitivity: the maps are of different checkpoints: %s and %s", around.Source.Name, singles.Source.Name)
	}
	out := *around
	out.Tensors = slices.Clone(around.Tensors)
	type pair struct{ around, single float64 }
	each := make([]pair, len(out.Tensors))
	total := map[quant.Class]pair{}
	for i := range out.Tensors {
		t := &out.Tensors[i]
		k := slices.IndexFunc(singles.Tensors, func(x Tensor) bool { return x.Path == t.Path })
		if k < 0 {
			return nil, fmt.Errorf("sensitivity: %s was not measured singly", t.Path)
		}
		for _, c := range singles.Tensors[k].Candidates {
			if own := t.candidate(c.Format); own != nil && !c.Estimated && own.Damage > 0 {
				each[i] = pair{own.Damage, c.Damage}
				break
			}
		}
		if each[i].around == 0 {
			return nil, fmt.Errorf("sensitivity: %s has no format that both maps have damage for", t.Path)
		}
		sum := total[t.Class]
		total[t.Class] = pair{sum.around + each[i].around, sum.single + each[i].single}
	}
	for i := range out.Tensors {
		t := &out.Tensors[i]
		sum := total[t.Class]
		if sum.single == 0 {
			continue
		}
		f := each[i].single / sum.single * sum.around / each[i].around
		t.Candidates = slices.Clone(t.Candidates)
		for j := range t.Candidates {
			t.Candidates[j].Damage *= f
			t.Candidates[j].StandardError *= f
		}
	}
	return &out, out.Check()
}
