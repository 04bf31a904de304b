package chunking

import (
	"fmt"
	"strings"

	"github.com/smelt-go/smelt/models"
)

// Topology names a rule that places the cuts.
type Topology string

// The topologies. All but Auto follow from the configuration alone: own
// layers, those before the first that shares keys and values, are halved, and
// so are the sharing ones. 35 layers of which 20 share make 0-8, 8-15, 15-25
// and 25-35.
const (
	TopologyAuto Topology = "auto"         // the fewest chunks within the limits, balanced by bytes
	Topology1    Topology = "1"            // everything
	Topology2    Topology = "2"            // own layers, sharing layers
	Topology3    Topology = "coreml-llm-3" // half of the own; the other half with half of the sharing; the rest
	Topology4    Topology = "coreml-llm-4" // two halves each
)

// Topologies lists all of them.
func Topologies() []Topology {
	return []Topology{TopologyAuto, Topology1, Topology2, Topology3, Topology4}
}

// ParseTopology reads a topology's name.
func ParseTopology(s string) (Topology, error) {
	var names []string
	for _, t := range Topologies() {
		if s == string(t) {
			return t, nil
		}
		names = append(names, string(t))
	}
	return "", fmt.Errorf("chunking: topology %q is not known (want %s)", s, strings.Join(names, ", "))
}

// Producers is the shortest range that holds every layer whose keys and
// values later layers share; zero if there are none.
func Producers(cfg *models.Config) Range {
	var r Range
	for i := range cfg.Layers {
		if cfg.Source(i) == i && cfg.Lent(i, i+1) {
			if r.Last == 0 {
				r.First = i
			}
			r.Last = i + 1
		}
	}
	return r
}

// Cut places the cuts of a topology. Auto also reads sizes and limits. For a
// model that shares no keys and values Topology2 is two chunks of like size,
// and the others are errors.
func (t Topology) Cut(cfg *models.Config, s Sizes, l Limits) ([]Range, error) {
	p := Producers(cfg)
	L, own := cfg.Layers, 0
	for own < L && cfg.Source(own) == own {
		own++
	}
	switch {
	case t == TopologyAuto:
		s.Whole = p
		return CutUnder(l, s)
	case t == Topology1:
		return []Range{{0, L}}, nil
	case p.Last == 0 && t == Topology2:
		return CutInto(2, s)
	case p.Last == 0:
		return nil, fmt.Errorf("chunking: topology %s needs a model whose last layers share keys and values, and %s does not (use %s, or say how many chunks)", t, cfg.Architecture, TopologyAuto)
	}
	// Where a kind's producer lies in the first half, that half ends before it.
	first := min((own+1)/2, p.First)
	mid := own + (L-own)/2
	var ends []int
	switch t {
	case Topology2:
		ends = []int{own, L}
	case Topology3:
		ends = []int{first, mid, L}
	case Topology4:
		ends = []int{first, own, mid, L}
	default:
		return nil, fmt.Errorf("chunking: topology %q is not known", t)
	}
	var out []Range
	from := 0
	for _, to := range ends {
		if to <= from {
			return nil, fmt.Errorf("chunking: topology %s does not fit %d layers of which the last %d share the keys and values of layers %d to %d: a chunk would be empty (use %s)", t, L, L-own, p.First, p.Last-1, Topology2)
		}
		out = append(out, Range{from, to})
		from = to
	}
	return out, nil
}

// parted says which chunks a cut puts the producers of shared keys and values
// in, if they are several; "" otherwise.
func parted(cfg *models.Config, cut []Range) string {
	p := Producers(cfg)
	for _, r := range cut {
		if p.splits(r.Last) {
			return fmt.Sprintf("the cut at layer %d parts layers %d and %d", r.Last, p.First, p.Last-1)
		}
	}
	return ""
}
