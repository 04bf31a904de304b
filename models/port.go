package models

import "github.com/smelt-go/smelt/mil"

// Role says what a graph input, output or state means. Names and shapes are
// the contract's business; a model finds its values by role and kind.
type Role string

// Roles of inputs.
const (
	InputIDs    Role = "input_ids"     // int32 [1,T]
	HiddenIn    Role = "hidden_states" // [1,T,H], the residual stream
	Mask        Role = "mask"          // [1,1,T,S+T], additive; cache slots first, then the T new tokens
	RopeCos     Role = "rope_cos"      // [1,1,T,D]
	RopeSin     Role = "rope_sin"      // [1,1,T,D]
	KeyCache    Role = "key_cache"     // [n,kv,S,D], read only
	ValueCache  Role = "value_cache"   // [n,kv,S,D], read only
	WritePos    Role = "write_pos"     // int32 [1]: first slot written in this call
	WriteOneHot Role = "write_one_hot" // [1,1,S,T]: column t is one-hot at the slot of token t, or zero
)

// Roles of inputs that only models with per-layer embeddings or shared keys
// and values have. The shared ones are those of one layer in an earlier part;
// in bundles with states that part returns them under the same role.
const (
	PerLayerRaw     Role = "per_layer_raw"     // [1,T,L*P], rows of the per-layer table, scaled
	PerLayerIn      Role = "per_layer_in"      // [1,T,L*P], combined with the projection
	SharedKeys      Role = "shared_keys"       // [1,kv,S,D], the cache before this call
	SharedValues    Role = "shared_values"     // [1,kv,S,D]
	SharedNewKeys   Role = "shared_new_keys"   // [1,kv,T,D], of the tokens of this call
	SharedNewValues Role = "shared_new_values" // [1,kv,T,D]
)

// Roles of outputs of parts that return their caches with the tokens of the
// call written into them.
const (
	KeyCacheOut   Role = "key_cache_out"   // as KeyCache
	ValueCacheOut Role = "value_cache_out" // as ValueCache
)

// Roles of a drafter's inputs. KeyCache and ValueCache are, for the Gemma 4
// assistant, those of its target.
const (
	TokenEmbedding Role = "token_embedding" // [1,T,·], embedding rows
	TargetHidden   Role = "target_hidden"   // [1,T,Ht], hidden state of the target
	TapsIn         Role = "taps"            // [1,T,n*Ht], the target's residual stream after n layers
	DraftHiddenIn  Role = "draft_hidden"    // [1,T,·], what the step before returned
	Anchor         Role = "anchor"          // int32 [1], the token before the first draft
)

// Roles of a drafter's outputs.
const (
	DraftHiddenOut  Role = "draft_hidden_out" // [1,T,·], for the next step
	CandidateIDs    Role = "candidate_ids"    // int32 [1,M], the tokens that have logits
	CandidateLogits Role = "candidate_logits" // [1,M]
	DraftIDs        Role = "draft_ids"        // int32 [1,n]
	Confidence      Role = "confidence"       // [1,n]
)

// TapOut is the role of an output of a target: [1,T,H], the residual stream
// after the layer that the port names, or before the first for layer -1.
const TapOut Role = "tap"

// KVState is the role of a state: [2n,kv,S,D], the keys and the values of
// the chunk's layers of one kind, keys first.
const KVState Role = "kv_state"

// Roles of outputs.
const (
	PerLayerOut Role = "per_layer_out"     // [1,T,L*P], for the parts that follow
	HiddenOut   Role = "hidden_states_out" // [1,T,H]
	NewKeys     Role = "new_keys"          // [n,kv,T,D], rotated
	NewValues   Role = "new_values"        // [n,kv,T,D]
	Logits      Role = "logits"            // [1,T,V]
	TokenID     Role = "token_id"          // int32 [1,T], the first of the largest logits
	TokenLogit  Role = "token_logit"       // [1,T]
	TopIDs      Role = "top_ids"           // int32 [1,T,K], of the largest logits, largest first
	TopLogits   Role = "top_logits"        // [1,T,K]
)

// Port declares one input, output or state of a function.
type Port struct {
	Name  string
	Role  Role
	Kind  Kind // for roles that exist once a kind of attention
	DType mil.DType
	Shape []int
	// PostNorm tags HiddenOut: false is the residual stream, true the
	// output of the final norm.
	PostNorm bool
}

// Part is a piece of a model to build: layers [First, Last) of one function.
type Part struct {
	First, Last int
	T           int // tokens a call
	Inputs      []Port
	States      []Port
	Outputs     []Port
	// Merged parts attend to caches into which the tokens of the call have been
	// written: masks have a column for each row of them, and SharedKeys and
	// SharedValues hold the call's tokens too.
	Merged bool
	// Scaled announces that the residual stream will be scaled by a power of
	// two, so every place where it is made must have a constant to scale.
	Scaled bool
}

func find(ports []Port, r Role, k Kind) (Port, bool) {
	for _, p := range ports {
		if p.Role == r && (p.Kind == k || p.Kind == "") {
			return p, true
		}
	}
	return Port{}, false
}
