package reference

import "slices"

const drafterArchitecture = "Gemma4AssistantForCausalLM"

// Names of a drafter's tensors beside those of a decoder.
const (
	preProjectionName  = "pre_projection.weight"
	postProjectionName = "post_projection.weight"
	centroidsName      = "masked_embedding.centroids.weight"
	tokenOrderName     = "masked_embedding.token_ordering"
)

// DrafterConfig is the config.json of a Gemma4AssistantForCausalLM. Its layers
// are Gemma 4's without per-layer embeddings and without keys and values of
// their own: KVSource is TargetKV throughout.
type DrafterConfig struct {
	Config
	TargetHidden int // width of the target's residual stream
	// Centroids is the number of clusters the vocabulary is divided into, and
	// TopCentroids how many of them get logits; 0 if the whole vocabulary does.
	Centroids, TopCentroids int
}

// ParseDrafterConfig reads a drafter's config.json.
func ParseDrafterConfig(configJSON []byte) (DrafterConfig, error) {
	root, err := parseObject("config.json", configJSON)
	if err != nil {
		return DrafterConfig{}, err
	}
	var c DrafterConfig
	c.Architecture = drafterArchitecture
	if archs := root.texts("architectures"); root.err == nil && (len(archs) != 1 || archs[0] != drafterArchitecture) {
		root.fail("architectures: want %s, got %q", drafterArchitecture, archs)
	}
	if t := root.textOr("model_type", "gemma4_assistant"); t != "gemma4_assistant" {
		root.fail("model_type: %q does not belong to %s (want %q)", t, drafterArchitecture, "gemma4_assistant")
	}
	c.TargetHidden = root.size("backbone_hidden_size")
	if root.flagOr("use_ordered_embeddings", false) {
		c.Centroids, c.TopCentroids = root.size("num_centroids"), root.size("centroid_intermediate_top_k")
		if c.TopCentroids > c.Centroids {
			root.fail("centroid_intermediate_top_k: %d is more than num_centroids %d", c.TopCentroids, c.Centroids)
		}
	} else {
		root.taken["num_centroids"], root.taken["centroid_intermediate_top_k"] = true, true
	}
	o := root.object("text_config")
	if o == nil {
		root.missing("text_config")
		return DrafterConfig{}, root.err
	}
	if t := o.textOr("model_type", "gemma4_text"); t != "gemma4_text" {
		o.fail("model_type: %q does not belong to %s (want %q)", t, drafterArchitecture, "gemma4_text")
	}
	c.TiedHead = root.flagOr("tie_word_embeddings", o.flagOr("tie_word_embeddings", true))
	if o.flagOr("tie_word_embeddings", c.TiedHead) != c.TiedHead {
		root.fail("tie_word_embeddings: differs from the one in text_config")
	}
	root.refuseRest(neutral)

	readGemma4Text(o, &c.Config)
	for _, key := range []string{"hidden_size_per_layer_input", "vocab_size_per_layer_input"} {
		if n := 0; o.decode(key, &n, "an integer") && n != 0 {
			o.fail("%s: is %d, but a drafter has no per-layer embeddings", key, n)
		}
	}
	if o.flagOr("use_double_wide_mlp", false) {
		o.fail("use_double_wide_mlp: is true, but a drafter's layers are all of one width")
	}
	sharing := 0
	if o.decode("num_kv_shared_layers", &sharing, "an integer") && sharing != 0 && sharing != c.Layers {
		o.fail("num_kv_shared_layers: is %d, but all %d layers of a drafter read the target's keys and values", sharing, c.Layers)
	}
	c.FinalSoftcap = 0 // drafters do not apply what the key says
	c.KVSource = slices.Repeat([]int{TargetKV}, c.Layers)
	c.check(o)
	if o.err == nil && c.Centroids > 0 && c.Vocab%c.Centroids != 0 {
		root.fail("num_centroids: %d clusters do not divide the vocabulary of %d", c.Centroids, c.Vocab)
	}
	o.refuseRest(neutral)
	if err := either(root.err, o.err); err != nil {
		return DrafterConfig{}, err
	}
	return c, nil
}

func (c *DrafterConfig) tensors() (used, unused map[string][]int) {
	used, unused = c.Config.tensors()
	used[preProjectionName] = []int{c.Hidden, 2 * c.TargetHidden}
	used[postProjectionName] = []int{c.TargetHidden, c.Hidden}
	if c.Centroids > 0 {
		used[centroidsName] = []int{c.Centroids, c.Hidden}
		used[tokenOrderName] = []int{c.Vocab}
	}
	return used, unused
}
