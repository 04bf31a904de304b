package parity

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// layerSites are the comparable intermediates of a layer, in order of
// computation, under the names of parity/reference.
var layerSites = []string{
	"attn_norm", "q_proj", "k_proj", "v_proj", "q", "k", "v", "attn_ctx", "attn_out", "post_attn_norm", "resid_mid",
	"mlp_norm", "mlp_gate", "mlp_up", "mlp_act", "mlp_out", "post_mlp_norm", "resid_mlp",
	"ple_gate", "ple_act", "ple_out", "post_ple_norm", "resid_ple", "out",
}

// graphNames are the names under which a graph has a site, where they differ.
var graphNames = map[string]string{"v": "v_t", "attn_ctx": "mix_flat", "mlp_gate": "gate", "mlp_up": "up",
	"ple_act": "ple_gated", "ple_out": "ple_proj", "post_ple_norm": "ple_out"}

// Site is a named intermediate, comparable between a graph and the reference.
type Site struct {
	Name  string // layers.3.attn_out, embed, final_norm
	Layer int    // -1 for embed, the number of layers for final_norm and logits
	Order int    // rank in order of computation
}

// sites lists the sites of a model with the given number of layers.
func sites(layers int) []Site {
	out := []Site{{"embed", -1, 0}, {"per_layer_token", -1, 1}, {"per_layer_projected", -1, 2}, {"per_layer_inputs", -1, 3}}
	for l := range layers {
		for _, s := range layerSites {
			out = append(out, Site{fmt.Sprintf("layers.%d.%s", l, s), l, len(out)})
		}
	}
	return append(out, Site{"final_norm", layers, len(out)}, Site{"logits", layers, len(out) + 1})
}

var layerValue = regexp.MustCompile(`^layers_(\d+)_(.+)$`)

// siteOf translates the name of a value of function f in chunk ch. width is
// what one token has of it: a value with heads is [1,heads,T,D] in a graph
// and [T,heads·D] in the reference.
func siteOf(ch *chunking.Chunk, f *chunking.Function, value string) (name string, ok bool) {
	for i := range f.Outputs {
		p := &f.Outputs[i]
		if p.Name != value {
			continue
		}
		switch {
		case p.Role == models.Logits:
			return "logits", true
		case p.Role == models.HiddenOut && p.Norm == "post":
			return "final_norm", true
		case p.Role == models.HiddenOut:
			return fmt.Sprintf("layers.%d.out", ch.Last-1), true
		case p.Role == models.PerLayerOut:
			return "per_layer_inputs", true
		case p.Role == models.NewKeys && len(p.Layers) == 1:
			return fmt.Sprintf("layers.%d.k", p.Layers[0]), true
		case p.Role == models.NewValues && len(p.Layers) == 1:
			return fmt.Sprintf("layers.%d.v", p.Layers[0]), true
		}
		return "", false
	}
	switch value {
	case "embed", "final_norm", "per_layer_inputs":
		return value, true
	case "per_layer_proj_flat":
		return "per_layer_projected", true
	}
	m := layerValue.FindStringSubmatch(value)
	if m == nil {
		return "", false
	}
	layer, err := strconv.Atoi(m[1])
	if err != nil {
		return "", false
	}
	for _, s := range layerSites {
		graph := s
		if g, ok := graphNames[s]; ok {
			graph = g
		}
		if graph == m[2] {
			return fmt.Sprintf("layers.%d.%s", layer, s), true
		}
	}
	return "", false
}

// scaleOf is the factor that a graph applies to a site: what is, or joins, the
// residual stream carries the contract's scale. sandwich tells models that
// normalise before adding to the stream.
func scaleOf(c *chunking.Contract, sandwich bool, name string) float32 {
	m := regexpSite.FindStringSubmatch(name)
	site := name
	if m != nil {
		site = m[1]
	}
	scaled := []string{"embed", "resid_mid", "out", "attn_out", "mlp_out"}
	if sandwich {
		scaled = []string{"embed", "resid_mid", "resid_mlp", "resid_ple", "out", "post_attn_norm", "post_mlp_norm", "post_ple_norm"}
	}
	if slices.Contains(scaled, site) {
		return float32(c.ResidualScale)
	}
	return 1
}

var regexpSite = regexp.MustCompile(`^layers\.\d+\.(.+)$`)

// tokenRows splits a value of T tokens into one row a token: [1,T,…] as it
// is, [1,heads,T,D] by token.
func tokenRows(t *runtime.Tensor, T int) [][]float32 {
	if t.F == nil {
		return nil
	}
	s := t.Shape
	switch {
	case len(s) == 3 && s[0] == 1 && s[1] == T:
		out := make([][]float32, T)
		for i := range out {
			out[i] = t.F[i*s[2] : (i+1)*s[2]]
		}
		return out
	case len(s) == 4 && s[0] == 1 && s[2] == T:
		out := make([][]float32, T)
		for i := range out {
			for h := range s[1] {
				at := (h*T + i) * s[3]
				out[i] = append(out[i], t.F[at:at+s[3]]...)
			}
		}
		return out
	}
	return nil
}
