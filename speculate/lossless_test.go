package speculate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/speculate"
)

// wide reports whether the whole matrix is to be run: SMELT_GOLDENS is set.
func wide() bool { return os.Getenv("SMELT_GOLDENS") != "" }

// matrix counts runs by source and γ.
type matrix struct {
	rows  []string
	cells map[string]map[int]*cell
}

type cell struct{ runs, equal, drafted, accepted int }

func (m *matrix) at(row string, gamma int) *cell {
	if m.cells[row] == nil {
		if m.cells == nil {
			m.cells = map[string]map[int]*cell{}
		}
		m.cells[row] = map[int]*cell{}
		m.rows = append(m.rows, row)
	}
	c := m.cells[row][gamma]
	if c == nil {
		c = &cell{}
		m.cells[row][gamma] = c
	}
	return c
}

// String prints the matrix: runs whose text is serial decoding's of all, and
// drafts accepted of all.
func (m *matrix) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-44s", "equal/runs")
	for g := 1; g <= 7; g++ {
		fmt.Fprintf(&b, "  γ=%d    ", g)
	}
	fmt.Fprintf(&b, " accepted of drafted\n")
	runs, equal := 0, 0
	for _, row := range m.rows {
		fmt.Fprintf(&b, "%-44s", row)
		var d, a int
		for g := 1; g <= 7; g++ {
			c := m.cells[row][g]
			if c == nil {
				fmt.Fprintf(&b, "  –      ")
				continue
			}
			fmt.Fprintf(&b, "  %-7s", fmt.Sprintf("%d/%d", c.equal, c.runs))
			runs, equal, d, a = runs+c.runs, equal+c.equal, d+c.drafted, a+c.accepted
		}
		fmt.Fprintf(&b, " %d of %d\n", a, d)
	}
	fmt.Fprintf(&b, "%d sources, %d of %d runs equal", len(m.rows), equal, runs)
	return b.String()
}

// fill runs all sources of a bench. Ends of text end it for every other prompt.
func (m *matrix) fill(t *testing.T, b bench, suffix string, gammas []int, ties float64) {
	t.Helper()
	for i, prompt := range b.prompts {
		o := speculate.Options{MaxTokens: 20, IgnoreEOS: i%2 == 0}
		serial, err := speculate.Serial(t.Context(), b.target, prompt, speculate.WalkDecode, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range b.sources {
			for _, gamma := range gammas {
				source := s
				if b.random {
					source = &coached{s, slices.Concat(prompt, serial.Output), rand.New(rand.NewPCG(uint64(i), uint64(gamma)))}
				}
				o.Gamma = gamma
				r, err := speculate.Run(t.Context(), b.target, source, prompt, o)
				if err != nil {
					t.Fatalf("%s%s, γ = %d, prompt %d: %v", s.Name(), suffix, gamma, i, err)
				}
				c := m.at(s.Name()+suffix, gamma)
				c.runs++
				c.drafted += r.Drafted
				c.accepted += r.Accepted
				if d := speculate.NewDrift(serial, r.Output); d.First < 0 {
					c.equal++
				} else if !d.Tie(serial, ties) {
					t.Errorf("%s%s, γ = %d, prompt %d: the text differs from token %d on", s.Name(), suffix, gamma, i, d.First)
				}
			}
		}
	}
}

// sourcesWanted are those that the matrix must have: all kinds of sources, and
// their quantized copies.
var sourcesWanted = []string{"same vocabulary", "same vocabulary, 4 bits", "other vocabulary (re-encoded)", "prompt lookup", "earliest match", "recent match",
	"suffix scan", "suffix automaton", "suffix automaton+prompt lookup+model", "assistant", "assistant-plain", "suffix automaton+prompt lookup+assistant",
	"dspark-forward", "dspark-forward, 4 bits", "eagle3-llama", "mtp-modules", "earliest match+recent match+dspark-forward"}

// TestLossless: with every source and 1 to 7 drafts a round, through converted
// bundles, speculation says what the target says one token at a time. With
// SMELT_GOLDENS set it runs the whole matrix; -v prints it.
func TestLossless(t *testing.T) {
	count, gammas := 4, []int{1, 4, 7}
	if wide() {
		count, gammas = 64, []int{1, 2, 3, 4, 5, 6, 7}
	}
	var m matrix
	fp32 := conversion.Options{Compute: "fp32"}
	for _, b := range []bench{trained(t, count, fp32), assistants(t, count), tapped(t, count)} {
		if len(b.prompts) != count {
			t.Fatalf("%d prompts, want %d", len(b.prompts), count)
		}
		m.fill(t, b, "", gammas, 0)
	}
	t.Logf("\n%s", m.String())
	got := slices.Clone(m.rows)
	slices.Sort(got)
	want := slices.Clone(sourcesWanted)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("sources %q, want %q", got, want)
	}
	for _, row := range m.rows {
		accepted := 0
		for _, c := range m.cells[row] {
			accepted += c.accepted
		}
		if accepted == 0 && wide() {
			t.Errorf("%s: no draft was ever accepted, so that nothing was tried", row)
		}
	}
}

// TestLosslessForms: so it is with every form of cache, with several chunks, and
// with a compressed target. Where arithmetic rounds to fp16, a text may part at a
// near tie only.
func TestLosslessForms(t *testing.T) {
	count, gammas := 3, []int{1, 3, 7}
	if wide() {
		count, gammas = 32, []int{1, 4, 7}
	}
	var m matrix
	for _, form := range []struct {
		name string
		o    conversion.Options
		ties float64
	}{
		{", state cache in fp16", conversion.Options{KV: "state"}, speculate.FP16Ties},
		{", shifting cache", conversion.Options{Compute: "fp32", KV: "coreml-llm"}, 0},
		{", three chunks", conversion.Options{Compute: "fp32", Chunks: 3}, 0},
		{", 4-bit target in fp16", conversion.Options{Quantize: preset(t, "coreml-int4-b32")}, speculate.FP16Ties},
	} {
		b := trained(t, count, form.o)
		b.sources = []speculate.Source{b.sources[0], b.sources[4], b.sources[5], speculate.Lookup("chance", chance{rand.New(rand.NewPCG(1, 1))})}
		m.fill(t, b, form.name, gammas, form.ties)
	}
	t.Logf("\n%s", m.String())
	if len(m.rows) != 16 {
		t.Errorf("%d rows, want 16", len(m.rows))
	}
}
