package parity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/runtime"
)

// Finding is where a bundle first leaves the reference.
type Finding struct {
	Chunk    string `json:"chunk"`
	Function string `json:"function"`
	Layer    int    `json:"layer"` // -1: before the first, the number of layers: after the last
	Position int    `json:"position"`
	Site     string `json:"intermediate"`
	Mode     string `json:"mode"`
	// Relative is ‖bundle-reference‖/‖reference‖ there, Limit what it was
	// held against, Before the deviation of the site computed just before.
	Relative Num    `json:"relative_l2"`
	Limit    Num    `json:"limit"`
	MaxAbs   Num    `json:"max_abs"`
	Before   Num    `json:"relative_l2_before"`
	Previous string `json:"intermediate_before,omitempty"`
	// Change says how the values differ, where that has a simple form; Scope
	// which layers it begins with.
	Change string `json:"change,omitempty"`
	Scope  string `json:"scope,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// String is one line for people.
func (f *Finding) String() string {
	var at []string
	for _, x := range []string{f.Chunk, f.Function} {
		if x != "" {
			at = append(at, x)
		}
	}
	s := strings.Join(at, " ")
	if f.Site != "" {
		s = strings.TrimPrefix(s+": first difference at "+f.Site, ": ")
	}
	if f.Position >= 0 {
		s += fmt.Sprintf(", position %d", f.Position)
	}
	if f.Mode != "" {
		s += fmt.Sprintf(" (%s mode)", f.Mode)
	}
	if f.Relative != 0 {
		s += fmt.Sprintf(": relative error %s, allowed %s", short(float64(f.Relative)), short(float64(f.Limit)))
	}
	if f.MaxAbs != 0 {
		s += fmt.Sprintf(", largest |Δ| %s", short(float64(f.MaxAbs)))
	}
	for _, x := range []string{f.Change, f.Scope} {
		if x != "" {
			s += "; " + x
		}
	}
	if f.Previous != "" {
		s += fmt.Sprintf("; %s before it %s", f.Previous, short(float64(f.Before)))
	}
	if f.Hint != "" {
		s += "; " + f.Hint
	}
	return strings.TrimPrefix(s, ", ")
}

// siteLimit bounds the relative deviation of an intermediate. In fp32 mode it
// leaves room for stored constants: gains of 1+w, weights of an fp32 checkpoint
// and decoded codes need more digits than fp16 has, weights of a bf16 one do not.
func (s *Subject) siteLimit(mode runtime.Mode) float64 {
	switch {
	case s.Contract.Compute == "fp32":
		return 5e-5
	case mode == runtime.Typed || s.rounded():
		return 6e-2
	case s.Config != nil && !s.Config.UnitOffset && !s.compressed():
		return 3e-3
	}
	return 1e-2
}

// compressed reports whether weights are decoded, which rounds them to fp16.
func (s *Subject) compressed() bool {
	if s.codes == nil {
		return false
	}
	for _, w := range s.codes.weights {
		if w.bits > 0 {
			return true
		}
	}
	return false
}

// rounded reports whether fp16 cannot hold the checkpoint's weights exactly.
// Their rounding moves results as much as that of activations does.
func (s *Subject) rounded() bool {
	return slices.ContainsFunc(s.Contract.Source.DTypes, func(d string) bool { return d != "BF16" && d != "F16" })
}

// tolerance is what a run of the bundle may deviate from a recording.
func (s *Subject) tolerance(rec *Recording, mode runtime.Mode) Tolerance {
	if mode == runtime.FP32 && s.rounded() {
		mode = runtime.Typed
	}
	return rec.tolerance(s.Contract.Compute, mode)
}

// bisect runs again under a tap and finds the first intermediate that
// differs, by layer, then by site, then by position. nil: none does.
func (s *Subject) bisect(ctx context.Context, sus *suspect) (*Finding, error) {
	to := min(sus.position+1, len(sus.rec.IDs), s.Contract.Context)
	from := 0
	if s.large {
		from = max(0, to-16)
	}
	modes := []runtime.Mode{sus.mode}
	if s.Contract.Compute != "fp32" && sus.mode == runtime.Typed && s.wants(runtime.FP32) {
		modes = []runtime.Mode{runtime.FP32, runtime.Typed}
	}
	want, err := s.referenceSites(ctx, sus.rec, from, to)
	if err != nil {
		return nil, err
	}
	for _, mode := range modes {
		got, where, err := s.graphSites(ctx, sus.rec, mode, sus.via, from, to)
		if err != nil {
			return nil, err
		}
		if f := s.first(want, got, where, mode); f != nil {
			return f, nil
		}
	}
	return nil, nil
}

// first is the first site, in order of computation, beyond the limit.
func (s *Subject) first(want, got siteRows, where map[string]place, mode runtime.Mode) *Finding {
	limit := s.siteLimit(mode)
	before, previous := Num(0), ""
	clean := map[string][]int{} // layers whose site of a kind is right
	for _, site := range sites(s.Contract.Model.Layers) {
		d, ok := deviation(site.Name, want[site.Name], got[site.Name])
		if !ok {
			continue
		}
		if float64(d.Relative) <= limit {
			before, previous = d.Relative, site.Name
			clean[siteKind(site.Name)] = append(clean[siteKind(site.Name)], site.Layer)
			continue
		}
		at := where[site.Name]
		return &Finding{Chunk: at.chunk, Function: at.function, Layer: site.Layer, Site: site.Name, Mode: mode.String(),
			Position: firstBeyond(want[site.Name], got[site.Name], limit), Relative: d.Relative, Limit: Num(limit),
			MaxAbs: d.MaxAbs, Before: before, Previous: previous, Hint: hints[siteKind(site.Name)],
			Change: s.changeOf(site, want[site.Name], got[site.Name], limit), Scope: s.scopeOf(site.Layer, clean[siteKind(site.Name)])}
	}
	return nil
}

// scopeOf says what the layers before, whose site is right, tell about the one
// that is not.
func (s *Subject) scopeOf(layer int, clean []int) string {
	if layer < 0 || layer >= s.Contract.Model.Layers {
		return ""
	}
	kind, other := "full", "sliding"
	if s.sliding(layer) {
		kind, other = other, kind
	}
	same := slices.ContainsFunc(clean, func(l int) bool { return s.sliding(l) == s.sliding(layer) })
	lends := s.borrows(layer)
	switch {
	case lends && slices.ContainsFunc(clean, func(l int) bool { return s.borrows(l) == lends }):
		return "not in all layers that borrow keys"
	case lends:
		return "the first " + kind + " layer that borrows keys"
	case same:
		return "not in the " + kind + " layers before"
	case len(clean) > 0:
		return "the first " + kind + " layer; " + other + " ones before are right"
	}
	return "the first layer"
}

// borrows reports whether a layer reads the keys of another one.
func (s *Subject) borrows(layer int) bool {
	src := s.Contract.Model.KVSource
	return layer < len(src) && src[layer] != layer
}

// siteKind is a site without its layer.
func siteKind(name string) string {
	if m := regexpSite.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return name
}

// hints say what usually makes a site the first to differ.
var hints = map[string]string{
	"embed":               "look at the embedding table, its scale and the token ids the host feeds",
	"attn_norm":           "look at the norm's gain (w or 1+w) and epsilon, and at the hidden_states handed between chunks",
	"q_proj":              "look at the weight and bias of q_proj",
	"k_proj":              "look at the weight and bias of k_proj",
	"q":                   "look at RoPE (theta, frequencies, pairing of halves, row of the position) and the q norm",
	"k":                   "look at RoPE (theta, frequencies, pairing of halves, row of the position) and the k norm",
	"v_proj":              "look at the weight and bias of v_proj",
	"v":                   "look at the v norm, which has no gain",
	"attn_ctx":            "look at the mask, the window, the cache slots, the scale of q·k and the order of grouped heads",
	"attn_out":            "look at the weight of o_proj",
	"post_attn_norm":      "look at the gain of the norm after attention",
	"resid_mid":           "look at the residual sum and its scale",
	"mlp_norm":            "look at the gain of the norm before the MLP",
	"mlp_gate":            "look at the weight of gate_proj",
	"mlp_up":              "look at the weight of up_proj",
	"mlp_act":             "look at the activation function",
	"mlp_out":             "look at the weight of down_proj",
	"post_mlp_norm":       "look at the gain of the norm after the MLP",
	"out":                 "look at the residual sum and its scale",
	"per_layer_token":     "look at the per-layer table, its scale √P and the token ids the host feeds",
	"per_layer_projected": "look at per_layer_model_projection, its scale and its norm",
	"per_layer_inputs":    "look at the factor 1/√2 of the sum of both parts",
	"resid_mlp":           "look at the residual sum and its scale",
	"ple_gate":            "look at the weight of per_layer_input_gate",
	"ple_act":             "look at the activation of the per-layer gate and the layer's part of the per-layer inputs",
	"ple_out":             "look at the weight of per_layer_projection",
	"post_ple_norm":       "look at the gain of the norm after the per-layer projection",
	"resid_ple":           "look at the residual sum and its scale",
	"final_norm":          "look at the gain of the final norm",
	"logits":              "look at the head: tied or not, its rows, the softcap",
}
