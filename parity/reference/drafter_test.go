package reference

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
)

// drafterGolden is a drafter with what PyTorch computed, and its target.
type drafterGolden struct {
	*golden
	drafter *Drafter
	target  *Model
	result  *Result // of the target on all tokens
	record  struct {
		Anchors     []int
		Sensitivity map[string]struct {
			Max     float64 `json:"max_abs_dlogit_step0"`
			Changed string  `json:"draft_tokens_changed"`
		} `json:"sensitivity_of_golden"`
	}
}

func drafterGoldens(t testing.TB) []*drafterGolden {
	t.Helper()
	var all []*drafterGolden
	for _, name := range fixtures.Drafters() {
		g := &drafterGolden{}
		dir, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		src, err := checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { src.Close() })
		g.golden = &golden{name: name, dir: dir, src: src}
		for _, id := range g.ints(t, "input_ids") {
			g.ids = append(g.ids, int32(id))
		}
		data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &g.record); err != nil {
			t.Fatal(err)
		}
		if g.drafter, err = OpenDrafter(dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.drafter.Close() })
		g.target = openModel(t, filepath.Dir(dir))
		if g.result, err = g.target.Forward(t.Context(), g.ids, Options{KV: true}); err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	return all
}

func (g *drafterGolden) recorded(t testing.TB, n int, what string) *Matrix {
	return g.matrix(t, fmt.Sprintf("draft.n%d.%s", n, what))
}

func row(x []float32) *Matrix { return &Matrix{Rows: 1, Cols: len(x), Data: x} }

// TestDrafterGoldens runs every recorded round: each step from its recorded
// input, and the round as a whole from the target's own forward pass.
func TestDrafterGoldens(t *testing.T) {
	const tolerance = 1e-4
	for _, g := range drafterGoldens(t) {
		t.Run(g.name, func(t *testing.T) {
			check := func(what string, got, want *Matrix, tolerance float64) {
				t.Helper()
				bound := tolerance * max(1, float64(want.MaxAbs()))
				if d := maxDiff(t, got, want); !(d <= bound) {
					t.Errorf("%s: max |Δ| %g, want ≤ %g", what, d, bound)
				}
			}
			for kind, kv := range g.result.KV {
				check(kind.String()+".k", kv.K, flat(g.matrix(t, "target."+kind.String()+".k"), kv.K), tolerance)
				check(kind.String()+".v", kv.V, flat(g.matrix(t, "target."+kind.String()+".v"), kv.V), tolerance)
			}
			if len(g.result.KV) != 2 {
				t.Fatalf("keys and values of %d kinds", len(g.result.KV))
			}
			check("target.hidden_norm", g.result.Norm, g.matrix(t, "target.hidden_norm"), tolerance)

			var worstStep, worstRound float64
			for _, n := range g.record.Anchors {
				inputs, tokens := g.recorded(t, n, "inputs_embeds"), g.ints(t, fmt.Sprintf("draft.n%d.tokens", n))
				round := DraftRound{N: n, KV: g.result.KV}
				for i := range inputs.Rows {
					s, err := g.drafter.Step(t.Context(), round, inputs.Row(i), nil)
					if err != nil {
						t.Fatal(err)
					}
					for what, got := range map[string][]float32{
						"pre_projection": s.PreProjection, "hidden_pre_norm": s.Hidden, "logits": s.Logits, "projected": s.Projected,
					} {
						want := row(g.recorded(t, n, what).Row(i))
						check(fmt.Sprintf("n=%d step %d %s", n, i, what), row(got), want, tolerance)
						worstStep = max(worstStep, maxDiff(t, row(got), want)/max(1, float64(want.MaxAbs())))
					}
				}
				steps, err := g.drafter.Draft(t.Context(), g.target, round, g.ids[n], g.result.Norm.Row(n-1), inputs.Rows, nil)
				if err != nil {
					t.Fatal(err)
				}
				for i, s := range steps {
					if int64(s.Token) != tokens[i] {
						t.Errorf("n=%d: draft %d is %d, want %d", n, i, s.Token, tokens[i])
					}
					// Every step magnifies the deviation of the one before.
					want := row(g.recorded(t, n, "logits").Row(i))
					check(fmt.Sprintf("n=%d logits of draft %d", n, i), row(s.Logits), want, 1e-3)
					check(fmt.Sprintf("n=%d input of draft %d", n, i), row(s.Input), row(inputs.Row(i)), 1e-3)
					worstRound = max(worstRound, maxDiff(t, row(s.Logits), want)/max(1, float64(want.MaxAbs())))
				}
			}
			t.Logf("worst deviation relative to the peak: %.2g in a step, %.2g in a round", worstStep, worstRound)
		})
	}
}

// flat turns [1, T, D] into [T, D].
func flat(m, like *Matrix) *Matrix { return &Matrix{Rows: like.Rows, Cols: like.Cols, Data: m.Data} }

// TestDrafterFaults repeats the recorded mistakes, which were measured over the
// last three rounds of four steps.
func TestDrafterFaults(t *testing.T) {
	type state struct {
		drafter   Drafter
		round     DraftRound
		embedding float32   // factor
		hidden    []float32 // of the first step
	}
	faults := map[string]func(g *drafterGolden, s *state){
		"position_off_by_one": func(_ *drafterGolden, s *state) { s.round.shift = -1 },
		"pre_norm_hidden_fed": func(g *drafterGolden, s *state) {
			s.hidden = g.result.Hidden[len(g.result.Hidden)-1].Row(s.round.N - 1)
		},
		"embedding_scale_dropped": func(g *drafterGolden, s *state) { s.embedding = 1 / g.target.config.EmbedScale },
		"kv_one_token_short":      func(_ *drafterGolden, s *state) { s.round.N--; s.round.shift = 1 },
		"sliding_reach_one_less":  func(_ *drafterGolden, s *state) { s.drafter.config.Window-- },
	}
	for _, g := range drafterGoldens(t) {
		for name, recorded := range g.record.Sensitivity {
			t.Run(g.name+"/"+name, func(t *testing.T) {
				inject := faults[name]
				if inject == nil {
					t.Fatal("this mistake is not repeated")
				}
				var worst float64
				var changed, steps int
				for _, n := range g.record.Anchors[len(g.record.Anchors)-3:] {
					s := state{*g.drafter, DraftRound{N: n, KV: g.result.KV}, 1, g.result.Norm.Row(n - 1)}
					inject(g, &s)
					next, hidden := g.ids[n], s.hidden
					for i, token := range g.ints(t, fmt.Sprintf("draft.n%d.tokens", n)) {
						embedding, err := g.target.Embed(next)
						if err != nil {
							t.Fatal(err)
						}
						for j := range embedding {
							embedding[j] *= s.embedding
						}
						step, err := s.drafter.Step(t.Context(), s.round, slices.Concat(embedding, hidden), nil)
						if err != nil {
							t.Fatal(err)
						}
						if i == 0 {
							worst = max(worst, maxDiff(t, row(step.Logits), row(g.recorded(t, n, "logits").Row(0))))
						}
						if int64(step.Token) != token {
							changed++
						}
						steps++
						next, hidden = step.Token, step.Projected
					}
				}
				if math.Abs(worst-recorded.Max) > 0.02*recorded.Max {
					t.Errorf("max |Δlogit| of the first step: %.4g, recorded %.4g", worst, recorded.Max)
				}
				if got := fmt.Sprintf("%d/%d", changed, steps); got != recorded.Changed {
					t.Errorf("drafts changed: %s, recorded %s", got, recorded.Changed)
				}
			})
		}
	}
}

func TestDrafterRefuses(t *testing.T) {
	g := drafterGoldens(t)[0]
	good := DraftRound{N: 30, KV: g.result.KV}
	input := g.recorded(t, 26, "inputs_embeds").Row(0)
	kv := func(change func(m map[LayerKind]KV)) DraftRound {
		m := map[LayerKind]KV{}
		for k, v := range g.result.KV {
			m[k] = v
		}
		change(m)
		return DraftRound{N: 30, KV: m}
	}
	tests := []struct {
		name  string
		round DraftRound
		input []float32
		want  string
	}{
		{"short input", good, input[1:], "takes 160 values (embedding and hidden state), got 159"},
		{"nothing processed", DraftRound{KV: g.result.KV}, input, "follows 0 tokens"},
		{"too few rows", DraftRound{N: 81, KV: g.result.KV}, input, "rows are [80 16], want at least 81"},
		{"no full layer", kv(func(m map[LayerKind]KV) { delete(m, FullAttention) }), input, "layers.3: the target delivers no keys and values of a full_attention layer"},
		{"kinds swapped", kv(func(m map[LayerKind]KV) {
			m[FullAttention], m[SlidingAttention] = m[SlidingAttention], m[FullAttention]
		}), input, "layers.0: the target's sliding_attention rows are [80 32]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := g.drafter.Step(t.Context(), tt.round, tt.input, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if s != nil {
				t.Error("a step beside an error")
			}
		})
	}
	wrong := openModel(t, loadGolden(t, "gemma4-e4b").dir)
	if _, err := g.drafter.Draft(t.Context(), wrong, good, 1, g.result.Norm.Row(0), 1, nil); err == nil || !strings.Contains(err.Error(), "belongs to a target with hidden_size 80, got 96") {
		t.Errorf("drafter of another target: %v", err)
	}
}

// TestDrafterTaps: the names a step promises, and that keys beyond N do not
// count.
func TestDrafterTaps(t *testing.T) {
	g := drafterGoldens(t)[0]
	const n = 26
	var names []string
	input := g.recorded(t, n, "inputs_embeds").Row(0)
	s, err := g.drafter.Step(t.Context(), DraftRound{N: n, KV: g.result.KV}, input, func(name string, _ *Matrix) { names = append(names, name) })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"inputs_embeds", "pre_projection"}
	for layer := range g.drafter.config.Layers {
		for _, site := range []string{"attn_norm", "q_proj", "q", "attn_ctx", "attn_out", "post_attn_norm", "resid_mid",
			"mlp_norm", "mlp_gate", "mlp_up", "mlp_act", "mlp_out", "post_mlp_norm", "resid_mlp", "out"} {
			want = append(want, fmt.Sprintf("layers.%d.%s", layer, site))
		}
	}
	want = append(want, "final_norm", "centroid_scores", "logits", "projected")
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	short, err := g.target.Forward(t.Context(), g.ids[:n], Options{KV: true})
	if err != nil {
		t.Fatal(err)
	}
	again, err := g.drafter.Step(t.Context(), DraftRound{N: n, KV: short.KV}, input, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, again); diff != "" {
		t.Errorf("rows that the target computed later count (-with +without)\n%s", diff)
	}
	if len(s.Clusters) != 6 || s.Logits[s.Token] <= slices.Min(s.Logits) {
		t.Errorf("clusters %v, token %d", s.Clusters, s.Token)
	}
}
