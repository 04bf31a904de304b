package parity

import (
	"context"
	"fmt"
	"slices"

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
	Hint     string `json:"hint,omitempty"`
}

// String is one line for people.
func (f *Finding) String() string {
	s := fmt.Sprintf("%s %s: first difference at %s, position %d (%s mode): relative error %s, allowed %s, largest |Δ| %s",
		f.Chunk, f.Function, f.Site, f.Position, f.Mode, short(float64(f.Relative)), short(float64(f.Limit)), short(float64(f.MaxAbs)))
	if f.Previous != "" {
		s += fmt.Sprintf("; %s before it %s", f.Previous, short(float64(f.Before)))
	}
	if f.Hint != "" {
		s += "; " + f.Hint
	}
	return s
}

// siteLimit bounds the relative deviation of an intermediate. In fp32 mode it
// leaves room for stored constants: gains of 1+w and weights of an fp32
// checkpoint need more digits than fp16 has, weights of a bf16 one do not.
func (s *Subject) siteLimit(mode runtime.Mode) float64 {
	switch {
	case s.Contract.Compute == "fp32":
		return 5e-5
	case mode == runtime.Typed || s.rounded():
		return 6e-2
	case s.Config != nil && !s.Config.UnitOffset:
		return 3e-3
	}
	return 1e-2
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
	for _, site := range sites(s.Contract.Model.Layers) {
		d, ok := deviation(site.Name, want[site.Name], got[site.Name])
		if !ok {
			continue
		}
		if float64(d.Relative) <= limit {
			before, previous = d.Relative, site.Name
			continue
		}
		at := where[site.Name]
		return &Finding{Chunk: at.chunk, Function: at.function, Layer: site.Layer, Site: site.Name, Mode: mode.String(),
			Position: firstBeyond(want[site.Name], got[site.Name], limit), Relative: d.Relative, Limit: Num(limit),
			MaxAbs: d.MaxAbs, Before: before, Previous: previous, Hint: hints[siteKind(site.Name)]}
	}
	return nil
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
	"embed":          "look at the embedding table, its scale and the token ids the host feeds",
	"attn_norm":      "look at the norm's gain (w or 1+w) and epsilon, and at the hidden_states handed between chunks",
	"q_proj":         "look at the weight and bias of q_proj",
	"k_proj":         "look at the weight and bias of k_proj",
	"q":              "look at RoPE (theta, frequencies, pairing of halves, row of the position) and the q norm",
	"k":              "look at RoPE (theta, frequencies, pairing of halves, row of the position) and the k norm",
	"v":              "look at the weight and bias of v_proj",
	"attn_ctx":       "look at the mask, the window, the cache slots, the scale of q·k and the order of grouped heads",
	"attn_out":       "look at the weight of o_proj",
	"post_attn_norm": "look at the gain of the norm after attention",
	"resid_mid":      "look at the residual sum and its scale",
	"mlp_norm":       "look at the gain of the norm before the MLP",
	"mlp_gate":       "look at the weight of gate_proj",
	"mlp_up":         "look at the weight of up_proj",
	"mlp_act":        "look at the activation function",
	"mlp_out":        "look at the weight of down_proj",
	"post_mlp_norm":  "look at the gain of the norm after the MLP",
	"out":            "look at the residual sum and its scale",
	"final_norm":     "look at the gain of the final norm",
	"logits":         "look at the head: tied or not, its rows, the softcap",
}
