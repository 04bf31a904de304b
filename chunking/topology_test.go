package chunking_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
)

// sharing is a configuration of L layers, every n-th and the last of the own
// ones full, the last shared ones reading those before.
func sharing(layers, shared, every int) *models.Config {
	c := &models.Config{Architecture: "gemma4", Layers: layers, KVSource: make([]int, layers)}
	last := map[models.Kind]int{}
	for i := range layers {
		k := models.Sliding
		if (i+1)%every == 0 {
			k = models.Full
		}
		c.Kinds = append(c.Kinds, k)
		if c.KVSource[i] = i; i >= layers-shared {
			c.KVSource[i] = last[k]
		} else {
			last[k] = i
		}
	}
	return c
}

// TestTopologies holds the cuts against those that are published for the two
// sizes of Gemma 4.
func TestTopologies(t *testing.T) {
	e2b, e4b := sharing(35, 20, 5), sharing(42, 18, 6)
	for _, tt := range []struct {
		cfg      *models.Config
		topology chunking.Topology
		want     string
	}{
		{e2b, chunking.Topology4, "0-8,8-15,15-25,25-35"},
		{e2b, chunking.Topology3, "0-8,8-25,25-35"},
		{e2b, chunking.Topology2, "0-15,15-35"},
		{e2b, chunking.Topology1, "0-35"},
		{e4b, chunking.Topology4, "0-12,12-24,24-33,33-42"},
		{e4b, chunking.Topology3, "0-12,12-33,33-42"},
		{e4b, chunking.Topology2, "0-24,24-42"},
		{e4b, chunking.Topology1, "0-42"},
	} {
		cut, err := tt.topology.Cut(tt.cfg, chunking.Sizes{}, chunking.Limits{})
		if got := format(cut); err != nil || got != tt.want {
			t.Errorf("%d layers, %s: %s (%v), want %s", tt.cfg.Layers, tt.topology, got, err, tt.want)
		}
	}
	if p := chunking.Producers(e2b); p != (chunking.Range{First: 13, Last: 15}) {
		t.Errorf("producers of 35 layers: %v", p)
	}
	if p := chunking.Producers(e4b); p != (chunking.Range{First: 22, Last: 24}) {
		t.Errorf("producers of 42 layers: %v", p)
	}
}

// TestAuto tries every cut of small models: auto has the fewest chunks of all
// that keep the limits and the producers together, and of those one whose
// largest chunk is smallest.
func TestAuto(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSizes(t)
		n := len(s.Layers)
		every := rapid.IntRange(1, 3).Draw(t, "every")
		shared := 0
		if n > every {
			shared = rapid.IntRange(0, n-every).Draw(t, "shared")
		}
		cfg := sharing(n, shared, every)
		l := chunking.Limits{Bytes: rapid.Int64Range(1, 120).Draw(t, "bytes"), Layers: rapid.IntRange(0, n).Draw(t, "layers")}
		p := chunking.Producers(cfg)
		fewest, best := 0, int64(0)
		for k := n; k >= 1; k-- {
			for _, cut := range cuts(0, n, k) {
				ok := size(s, cut) <= l.Bytes
				for _, r := range cut {
					ok = ok && (l.Layers == 0 || r.Last-r.First <= l.Layers) && (r.Last <= p.First || r.Last >= p.Last)
				}
				if ok && (fewest != k || size(s, cut) < best) {
					fewest, best = k, size(s, cut)
				}
			}
		}
		cut, err := chunking.TopologyAuto.Cut(cfg, s, l)
		if fewest == 0 {
			if err == nil {
				t.Fatalf("%v, where no cut is possible", cut)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		covers(t, cut, n)
		if len(cut) != fewest || size(s, cut) != best {
			t.Fatalf("%v: %d chunks, the largest %d; the best cut has %d and %d", cut, len(cut), size(s, cut), fewest, best)
		}
	})
}

func TestTopologyErrors(t *testing.T) {
	even := func(n int) chunking.Sizes { return chunking.Sizes{Layers: slices.Repeat([]int64{10}, n)} }
	for _, tt := range []struct {
		topology chunking.Topology
		cfg      *models.Config
		l        chunking.Limits
		want     string
	}{
		{chunking.Topology4, sharing(8, 0, 4), chunking.Limits{}, "topology coreml-llm-4 needs a model whose last layers share keys and values, and gemma4 does not"},
		{chunking.Topology4, sharing(4, 3, 1), chunking.Limits{}, "topology coreml-llm-4 does not fit 4 layers"},
		{chunking.Topology4, sharing(5, 1, 2), chunking.Limits{}, "a chunk would be empty"},
		{chunking.TopologyAuto, sharing(8, 4, 2), chunking.Limits{Layers: 1}, "no cut has chunks of at most 1 layers: layers 2 to 3, which must stay together, are 2"},
		{chunking.TopologyAuto, sharing(8, 4, 2), chunking.Limits{Bytes: 19}, "layers 2 to 3, which must stay together, with what must go along, take 20"},
	} {
		_, err := tt.topology.Cut(tt.cfg, even(tt.cfg.Layers), tt.l)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "chunking: ") {
			t.Errorf("%s: got %v, want %q", tt.topology, err, tt.want)
		}
	}
	if cut, err := chunking.Topology2.Cut(sharing(5, 0, 2), even(5), chunking.Limits{}); err != nil || fmt.Sprint(cut) != "[{0 3} {3 5}]" {
		t.Errorf("two chunks of five layers: %v (%v)", cut, err)
	}
	if _, err := chunking.ParseTopology("5"); err == nil || !strings.Contains(err.Error(), "want auto, 1, 2, coreml-llm-3, coreml-llm-4") {
		t.Errorf("topology 5: %v", err)
	}
	for _, want := range chunking.Topologies() {
		if got, err := chunking.ParseTopology(string(want)); err != nil || got != want {
			t.Errorf("%s: %s (%v)", want, got, err)
		}
	}
}
