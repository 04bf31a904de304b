package chunking

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

// ContractVersion is the version of contract.json that this package writes.
const ContractVersion = 1

// Keys of the metadata of a chunk's package: what Source says of the contract
// that it belongs to.
const (
	MetaSource     = "smelt.source"
	MetaConversion = "smelt.conversion"
)

// ContractFile is the name of the contract inside a bundle.
const ContractFile = "contract.json"

// Contract declares everything a host needs to drive a bundle: for each chunk
// and function every input, output and state with its role, and the numbers
// from which masks, RoPE rows and cache positions follow. The graph, the
// host, the tests and the documentation read it; nothing is written twice.
type Contract struct {
	Version   int                  `json:"version"`
	Model     ModelInfo            `json:"model"`
	Source    Source               `json:"source"`
	Compute   string               `json:"compute"` // "fp16" or "fp32"
	Context   int                  `json:"context"` // positions 0 … Context-1
	Embedding Embedding            `json:"embedding"`
	PerLayer  *PerLayer            `json:"per_layer_embedding,omitempty"`
	Mask      MaskInfo             `json:"mask"`
	Attention map[models.Kind]Attn `json:"attention"`
	// ResidualScale is the power of two by which every hidden_states value
	// that is not post-norm is scaled, to stay inside fp16.
	ResidualScale float64 `json:"residual_scale"`
	KV            string  `json:"kv"` // "tensor", "state" or "coreml-llm"
	// Quantization is the recipe by which weights were compressed.
	Quantization json.RawMessage `json:"quantization,omitempty"`
	// Calibration is what else their codes depend on.
	Calibration string  `json:"calibration,omitempty"`
	Chunks      []Chunk `json:"chunks"`
}

// ModelInfo describes the model, for reports and for the host.
type ModelInfo struct {
	Architecture string        `json:"architecture"`
	Layers       int           `json:"layers"`
	Hidden       int           `json:"hidden_size"`
	Vocab        int           `json:"vocab_size"`
	Heads        int           `json:"num_attention_heads"`
	KVHeads      int           `json:"num_key_value_heads"`
	HeadDim      int           `json:"head_dim"`
	Kinds        []models.Kind `json:"layer_kinds"`
	// KVSource gives for every layer the one whose keys and values it reads,
	// where some share those of earlier layers.
	KVSource []int `json:"kv_source,omitempty"`
	BOS      int   `json:"bos_token_id"` // -1: none
	EOS      []int `json:"eos_token_ids,omitempty"`
}

// Source identifies what was converted.
type Source struct {
	// SHA256 is over the configuration and the names, types, shapes and contents of
	// all tensors used; of large tensors it covers samples of the contents.
	SHA256 string `json:"sha256,omitempty"`
	// Conversion tells conversions of one source apart: it is over what the
	// rest of the contract was when the chunks were written. Both stand in the
	// metadata of every chunk.
	Conversion string `json:"conversion,omitempty"`
	// DTypes are the element types of the tensors used, sorted, as in the
	// checkpoint: what fp16 cannot hold exactly has been rounded.
	DTypes []string `json:"dtypes,omitempty"`
}

// Embedding says how tokens become hidden_states.
type Embedding struct {
	// Mode is "sidecar": the host looks rows up; "int8": likewise, in rows of
	// int8; "graph": the first chunk takes input_ids; or "head": the rows are
	// those of the head's weights.
	Mode   string `json:"mode"`
	File   string `json:"file,omitempty"`   // safetensors file of the sidecar, or raw int8 [vocab, hidden]
	Tensor string `json:"tensor,omitempty"` // [vocab, hidden], of a safetensors file
	Scales string `json:"scales,omitempty"` // raw fp16 [vocab]: an element is int8·scale/127
	// Scale multiplies a row: the model's embedding scale times ResidualScale.
	Scale float64 `json:"scale"`
}

// PerLayer says how the host fills per_layer_raw: with the token's row of a
// table that holds an embedding for every layer.
type PerLayer struct {
	Dim    int     `json:"dim"`              // of one layer
	File   string  `json:"file"`             // safetensors file of the sidecar, or raw int8 [vocab, layers*dim]
	Tensor string  `json:"tensor,omitempty"` // [vocab, layers*dim], of a safetensors file
	Scales string  `json:"scales,omitempty"` // raw fp16 [vocab]: an element is int8·scale/127
	Scale  float64 `json:"scale"`            // multiplies a row
}

// MaskInfo says how masks are filled.
type MaskInfo struct {
	Blocked float64 `json:"blocked"` // added to scores that must not be attended to; 0 elsewhere
}

// Attn is what a kind of layer needs from the host.
type Attn struct {
	// Slots is the length of the cache. Position p lives in slot p if Layout
	// is "linear", in slot p mod Slots if it is "ring". If it is "shift" the
	// newest position lives in the last slot, and all move when one is added.
	Slots  int    `json:"slots"`
	Layout string `json:"layout"`
	// Window is the number of positions a token attends to, itself included;
	// 0 means all.
	Window  int `json:"window"`
	HeadDim int `json:"head_dim"`
	KVHeads int `json:"num_key_value_heads"`
	// CacheHeadDim is the width of cached rows where it exceeds HeadDim: zeros
	// fill them up.
	CacheHeadDim int `json:"cache_head_dim,omitempty"`
	// InvFreq are the RoPE frequencies in radians per position; row p of
	// cos is cos(p·InvFreq) twice over, likewise sin.
	InvFreq []float32 `json:"inv_freq"`
}

// Layouts of a cache.
const (
	Linear = "linear"
	Ring   = "ring"
	Shift  = "shift"
)

// Chunk is one .mlpackage.
type Chunk struct {
	Name      string     `json:"name"`
	File      string     `json:"file"`
	First     int        `json:"first_layer"`
	Last      int        `json:"last_layer"` // exclusive
	Functions []Function `json:"functions"`
}

// FunctionKind says what a function is for.
type FunctionKind string

// The kinds of functions.
const (
	Decode  FunctionKind = "decode"  // one token, committed
	Prefill FunctionKind = "prefill" // up to T tokens, committed
	Verify  FunctionKind = "verify"  // T tokens, nothing committed
)

// Function is one entry point of a chunk.
type Function struct {
	Name string       `json:"name"`
	Kind FunctionKind `json:"kind"`
	T    int          `json:"tokens"`
	// ComputeUnits is a hint where the function runs best, in Core ML's terms:
	// CPU_AND_NE, CPU_AND_GPU. Nothing follows from it for the graph.
	ComputeUnits string `json:"compute_units,omitempty"`
	Inputs       []Port `json:"inputs"`
	Outputs      []Port `json:"outputs"`
	States       []Port `json:"states,omitempty"`
}

// Port is one input, output or state.
type Port struct {
	Name  string      `json:"name"`
	DType string      `json:"dtype"` // fp16, fp32, int32
	Shape []int       `json:"shape"`
	Role  models.Role `json:"role"`
	Kind  models.Kind `json:"attention,omitempty"`
	// Layers lists the layers stacked along axis 0 of a cache or of new keys
	// and values. A state holds their keys first, then their values.
	Layers []int `json:"layers,omitempty"`
	// Norm tags hidden_states: "pre" is the residual stream, "post" the
	// output of the final norm.
	Norm string `json:"norm,omitempty"`
}

// Function returns the chunk's function of the given name, or nil.
func (c *Chunk) Function(name string) *Function {
	for i := range c.Functions {
		if c.Functions[i].Name == name {
			return &c.Functions[i]
		}
	}
	return nil
}

// Find returns the first port with the role (and kind, unless empty), or nil.
func Find(ports []Port, r models.Role, k models.Kind) *Port {
	for i := range ports {
		if ports[i].Role == r && (k == "" || ports[i].Kind == k) {
			return &ports[i]
		}
	}
	return nil
}

// ReadContract reads and validates the contract of a bundle directory.
func ReadContract(dir string) (*Contract, error) {
	path := filepath.Join(dir, ContractFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		hint := "give the directory that a conversion wrote"
		if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil {
			hint = "it looks like a checkpoint: convert it first"
		}
		return nil, fmt.Errorf("chunking: %s is not a bundle: there is no %s in it (%s)", dir, ContractFile, hint)
	}
	if err != nil {
		return nil, fmt.Errorf("chunking: %w", err)
	}
	var c Contract
	if err := decodeStrict(path, data, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// decodeStrict reads a contract and validates it; unknown fields are errors.
func decodeStrict(path string, data []byte, c interface{ Validate() error }) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(c)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return fmt.Errorf("chunking: %s: %w", path, err)
	}
	return nil
}

// Marshal returns the contract as indented JSON.
func (c *Contract) Marshal() ([]byte, error) {
	b, err := json.MarshalIndent(c, "", "  ")
	return append(b, '\n'), err
}

// Part gives the model what it needs to build function f of chunk c.
func (c *Contract) Part(ch *Chunk, f *Function) (models.Part, error) {
	p := models.Part{First: ch.First, Last: ch.Last, T: f.T, Scaled: c.ResidualScale != 1, Merged: c.Merged()}
	var err error
	conv := func(ports []Port) []models.Port {
		var out []models.Port
		for _, q := range ports {
			d, e := mil.ParseDType(q.DType)
			if e != nil {
				err = fmt.Errorf("chunking: %s: %s: %w", ch.Name, q.Name, e)
			}
			out = append(out, models.Port{Name: q.Name, Role: q.Role, Kind: q.Kind, DType: d, Shape: q.Shape, PostNorm: q.Norm == "post"})
		}
		return out
	}
	p.Inputs, p.States, p.Outputs = conv(f.Inputs), conv(f.States), conv(f.Outputs)
	return p, err
}
