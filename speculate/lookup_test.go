package speculate

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// lookupCase is a recorded case: what an implementation of the rule, in the
// project the rule comes from, proposed.
type lookupCase struct {
	Rule string          `json:"rule"`
	In   json.RawMessage `json:"in"`
	Out  json.RawMessage `json:"out"`
}

// TestRecordedCases runs all 91 recorded cases.
func TestRecordedCases(t *testing.T) {
	data, err := os.ReadFile("testdata/lookup-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Counts map[string]int
		Cases  []lookupCase
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i, c := range file.Cases {
		seen[c.Rule]++
		got, want := runCase(t, c)
		near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-6 })
		if diff := cmp.Diff(want, got, near, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("case %d, %s %s (-want +got):\n%s", i, c.Rule, c.In, diff)
		}
	}
	if diff := cmp.Diff(file.Counts, seen); diff != "" {
		t.Errorf("rules covered (-want +got):\n%s", diff)
	}
	if len(file.Cases) != 91 {
		t.Errorf("%d cases, want 91", len(file.Cases))
	}
}

func runCase(t *testing.T, c lookupCase) (got, want any) {
	t.Helper()
	var in struct {
		History         []int32
		Context         []int32
		Inserted        [][]int32
		MaxNgram        int `json:"max_ngram"`
		MaxLength       int `json:"max_length"`
		EOS             []int32
		MinN            int `json:"min_n"`
		MaxN            int `json:"max_n"`
		MaxModelLen     int `json:"max_model_len"`
		N, Gamma        int
		InsertDepth     int `json:"insert_depth"`
		MaxSuffix       int `json:"max_suffix"`
		MaxDepth        int `json:"max_depth"`
		Factor, Offset  float64
		MinProb         float64  `json:"min_prob"`
		DrafterStrings  []string `json:"drafter_strings"`
		TargetStrings   []string `json:"target_strings"`
		DrafterToTarget []int32  `json:"drafter_to_target"`
		TargetToDrafter []int32  `json:"target_to_drafter"`
		Seed            int32
		DrafterArgmax   []int32 `json:"drafter_argmax"`
		Start, Accepted int
		Old, New        []int32
	}
	if err := json.Unmarshal(c.In, &in); err != nil {
		t.Fatal(err)
	}
	decode := func(v any) any {
		if err := json.Unmarshal(c.Out, v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	draft := func(x []int32) (any, any) { return &x, decode(&[]int32{}) }
	switch c.Rule {
	case "hf_prompt_lookup":
		return draft(PromptLookup{in.MaxNgram, in.MaxLength, in.EOS}.Draft(in.History, in.Gamma))
	case "vllm_ngram":
		return draft(EarliestMatch{in.MinN, in.MaxN, in.MaxModelLen}.Draft(in.History, in.Gamma))
	case "coreml_pld":
		return draft(RecentMatch{in.N}.Draft(in.History, in.Gamma))
	case "coreml_suffix_scan":
		return draft(SuffixScan{}.Draft(in.History, in.Gamma))
	case "coreml_suffix_trie":
		trie := SuffixTrie{Depth: in.InsertDepth, MaxSuffix: in.MaxSuffix}
		for _, s := range in.Inserted {
			trie.Insert(s)
		}
		return draft(trie.Draft(in.Context, in.Gamma))
	case "arctic_suffix":
		a := NewAutomaton()
		for _, x := range in.History {
			a.Append(x)
		}
		type result struct {
			Draft []int32
			Probs []float64
			Score float64
			Match int `json:"match_len"`
		}
		d := Suffix{in.MaxDepth, in.Factor, in.Offset, in.MinProb}.Draft(a, in.Gamma)
		return &result{d.Tokens, d.Probs, d.Score, d.Match}, decode(&result{})
	case "cross_vocab_map":
		type result struct {
			A []int32 `json:"drafter_to_target"`
			B []int32 `json:"target_to_drafter"`
		}
		m := NewVocabMap(in.DrafterStrings, in.TargetStrings)
		return &result{m.ToTarget, m.ToDrafter}, decode(&result{})
	case "cross_vocab_burst":
		type result struct {
			Draft  []int32
			Verify []int32
			Next   *int `json:"next_position"`
		}
		step := 0
		b, err := VocabMap{in.DrafterToTarget, in.TargetToDrafter}.Burst(in.Seed, in.Gamma, in.Start, func(int32) (int32, error) {
			step++
			return in.DrafterArgmax[step-1], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r := &result{Draft: b.Drafts, Verify: b.Verify}
		if b.Next != nil {
			n := b.Next(in.Accepted)
			r.Next = &n
		}
		return r, decode(&result{})
	case "hf_token_alignment":
		type result struct {
			Discrepancy int
			Replacement []int32
			New         []int32
		}
		a, ok := Align(in.Old, in.New)
		if !ok {
			return "null", string(c.Out)
		}
		return &result{a.Discrepancy, a.Replacement, a.New}, decode(&result{})
	}
	t.Fatalf("unknown rule %q", c.Rule)
	return nil, nil
}

// TestAutomatonCounts: the automaton knows of every run how often it occurs.
func TestAutomatonCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Int32Range(0, 2), 1, 40).Draw(t, "text")
		a := NewAutomaton()
		for _, x := range text {
			a.Append(x)
		}
		i := rapid.IntRange(0, len(text)-1).Draw(t, "from")
		run := text[i:rapid.IntRange(i+1, len(text)).Draw(t, "to")]
		if rapid.Bool().Draw(t, "other") {
			run = rapid.SliceOfN(rapid.Int32Range(0, 2), 1, 5).Draw(t, "run")
		}
		want := 0
		for i := 0; i+len(run) <= len(text); i++ {
			if cmp.Equal(text[i:i+len(run)], run) {
				want++
			}
		}
		if got := a.Count(run); got != want {
			t.Fatalf("%v occurs %d times in %v, counted %d", run, want, text, got)
		}
	})
}

// TestLookupsProposeWhatWasSeen: every proposal is a run of the history.
func TestLookupsProposeWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := rapid.SliceOfN(rapid.Int32Range(0, 3), 1, 60).Draw(t, "history")
		gamma := rapid.IntRange(1, 7).Draw(t, "gamma")
		a := NewAutomaton()
		for _, x := range history {
			a.Append(x)
		}
		for name, d := range map[string][]int32{
			"prompt lookup":  PromptLookup{MaxN: 3}.Draft(history, gamma),
			"earliest match": EarliestMatch{MinN: 1, MaxN: 3}.Draft(history, gamma),
			"recent match":   RecentMatch{N: 2}.Draft(history, gamma),
			"scan":           SuffixScan{}.Draft(history, gamma),
			"automaton":      DefaultSuffix.Draft(a, gamma).Tokens,
		} {
			if len(d) > gamma {
				t.Fatalf("%s: %d drafts, want at most %d", name, len(d), gamma)
			}
			if len(d) > 0 && a.Count(d) == 0 {
				t.Fatalf("%s: %v is not in %v", name, d, history)
			}
		}
	})
}
