package quant

import (
	"slices"
	"strconv"
	"strings"
)

// Class says what a tensor of a model is for.
type Class string

// The classes.
const (
	Embedding Class = "embedding"
	Head      Class = "head"
	Query     Class = "q"
	Key       Class = "k"
	Value     Class = "v"
	Output    Class = "o"
	Gate      Class = "gate"
	Up        Class = "up"
	Down      Class = "down"
	Router    Class = "router" // scores experts
	Projector Class = "projector"
	Norm      Class = "norm"
	Bias      Class = "bias"
	Other     Class = "other"
)

// Classes are all classes, in the order of reports.
var Classes = []Class{Embedding, Head, Query, Key, Value, Output, Gate, Up, Down, Router, Projector, Norm, Bias, Other}

var classOf = map[string]Class{
	"embed_tokens": Embedding, "embed_tokens_per_layer": Embedding, "lm_head": Head,
	"q_proj": Query, "k_proj": Key, "v_proj": Value, "o_proj": Output,
	"gate_proj": Gate, "up_proj": Up, "down_proj": Down,
	"w1": Gate, "w3": Up, "w2": Down, // Mixtral's experts
	"per_layer_input_gate": Projector, "per_layer_projection": Projector, "per_layer_model_projection": Projector,
}

// Classify tells the class of a tensor from its name, such as
// model.layers.3.self_attn.q_proj.weight, and the layer it is in, or −1.
func Classify(name string) (Class, int) {
	parts := strings.Split(name, ".")
	layer := -1
	for i := range len(parts) - 1 {
		if parts[i] == "layers" {
			if n, err := strconv.Atoi(parts[i+1]); err == nil {
				layer = n
			}
			break
		}
	}
	if parts[len(parts)-1] == "bias" {
		return Bias, layer
	}
	if parts[len(parts)-1] != "weight" || len(parts) < 2 {
		return Other, layer
	}
	module, owner := parts[len(parts)-2], ""
	if len(parts) > 2 {
		owner = parts[len(parts)-3]
	}
	switch {
	case module == "gate" && (owner == "mlp" || owner == "block_sparse_moe"), module == "proj" && owner == "router", module == "router":
		return Router, layer
	case strings.HasSuffix(module, "norm") || strings.HasSuffix(module, "layernorm"):
		return Norm, layer
	}
	if c, ok := classOf[module]; ok {
		return c, layer
	}
	return Other, layer
}

func knownClass(c Class) bool { return slices.Contains(Classes, c) }
