package sensitivity

import (
	"math"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/quant"
)

func twoMaps() (around, singles *Map) {
	tensor := func(path string, class quant.Class, damages ...float64) Tensor {
		t := Tensor{Path: path, Class: class, Parameters: 10, Bytes: 20}
		for k, d := range damages {
			t.Candidates = append(t.Candidates, Measurement{Format: affine(4-k, 64), Bytes: 5, Damage: d})
		}
		return t
	}
	source := Source{SHA256: "a", Parameters: 30}
	around = &Map{Schema: Schema, Source: source, Base: "r", Tensors: []Tensor{
		tensor("e", quant.Embedding, 0.5, 2), tensor("q0", quant.Query, 0.1, 0.4), tensor("q1", quant.Query, 0.3, 1.5)}}
	singles = &Map{Schema: Schema, Source: source, Tensors: []Tensor{
		tensor("q0", quant.Query, 0.06), tensor("q1", quant.Query, 0.02), tensor("e", quant.Embedding, 7)}}
	return around, singles
}

// Sums of classes are around's, shares are those of singles, and formats of a tensor
// keep their proportion.
func TestDivide(t *testing.T) {
	around, singles := twoMaps()
	got, err := Divide(around, singles)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][2]float64{{0.5, 2}, {0.3, 1.2}, {0.1, 0.5}} {
		for j, w := range want {
			if d := got.Tensors[i].Candidates[j].Damage; math.Abs(d-w) > 1e-12 {
				t.Errorf("%s, candidate %d: %g, want %g", got.Tensors[i].Path, j, d, w)
			}
		}
	}
	if around.Tensors[1].Candidates[0].Damage != 0.1 {
		t.Error("the map given was changed")
	}
}

func TestDivideRefuses(t *testing.T) {
	for want, change := range map[string]func(a, s *Map){
		"around a recipe":       func(a, _ *Map) { a.Base = "" },
		"different checkpoints": func(_, s *Map) { s.Source.SHA256 = "b" },
		"not measured singly":   func(_, s *Map) { s.Tensors = s.Tensors[:2] },
		"no format that both":   func(_, s *Map) { s.Tensors[0].Candidates[0].Bits = 6 },
	} {
		a, s := twoMaps()
		change(a, s)
		if _, err := Divide(a, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
