package drafter

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	n := Needs{Hidden: 4, Vocab: 10, Taps: []int{0, 1}, Norm: Post, Keys: map[string]Shape{"full": {1, 2}}}
	good := func() Rows {
		return Rows{Position: 3, Tokens: []int32{1, 2}, Taps: make([]float32, 16), Hidden: make([]float32, 8), Norm: Post,
			Keys: map[string][]float32{"full": make([]float32, 4)}, Values: map[string][]float32{"full": make([]float32, 4)}}
	}
	if err := n.Check(good(), 3); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*Rows)
		want   string
	}{
		"none":        {func(r *Rows) { r.Tokens = nil }, "no tokens"},
		"a gap":       {func(r *Rows) { r.Position = 4 }, "start at position 4, want 3"},
		"vocabulary":  {func(r *Rows) { r.Tokens[0] = 10 }, "token 10"},
		"one tap":     {func(r *Rows) { r.Taps = r.Taps[:8] }, "taps of 2 tokens have 8 elements, want 16"},
		"wrong norm":  {func(r *Rows) { r.Norm = Pre }, `"pre"-norm`},
		"width":       {func(r *Rows) { r.Hidden = r.Hidden[:6] }, "have 6 elements, want 4 of each"},
		"no keys":     {func(r *Rows) { r.Keys = nil }, "full keys and values"},
		"short value": {func(r *Rows) { r.Values["full"] = nil }, "have 4 and 0 elements"},
	} {
		r := good()
		tt.change(&r)
		if err := n.Check(r, 3); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}

func TestFits(t *testing.T) {
	n := Needs{Hidden: 4, Vocab: 10, Layers: 6, Taps: []int{-1, 4}, Keys: map[string]Shape{"full": {1, 2}}}
	target := Target{Name: "it", Hidden: 4, Vocab: 10, Layers: 6, Keys: map[string]Shape{"full": {1, 2}, "sliding": {1, 1}}}
	if err := n.Fits(target); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*Needs, *Target)
		want   string
	}{
		"hidden":   {func(n *Needs, t *Target) { t.Hidden = 8 }, "hidden width of 4"},
		"vocab":    {func(n *Needs, t *Target) { t.Vocab = 11 }, "vocabulary has 10 tokens"},
		"layers":   {func(n *Needs, t *Target) { t.Layers = 7 }, "a target of 6 layers"},
		"last tap": {func(n *Needs, t *Target) { n.Taps = []int{5} }, "taps layer 5"},
		"keys":     {func(n *Needs, t *Target) { t.Keys = nil }, "full keys and values of 1 heads of 2"},
	} {
		n, target := n, target
		tt.change(&n, &target)
		if err := n.Fits(target); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}
