package sensitivity

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/smelt-go/smelt/quant"
)

// Schema names the format of maps, with its version.
const Schema = "smelt.sensitivity/1"

// Estimators of damage.
const (
	// KL is the divergence, measured for every candidate.
	KL = "kl"
	// Noise measures the divergence under Gaussian noise once a tensor and takes
	// damage to be proportional to the squared error of the module's output, or
	// of the weights where there is no output.
	Noise = "noise"
	// Scaled measures the divergence for some candidates of a tensor (Options.Probed)
	// and takes that of the others to be proportional to the squared error of the
	// module's output, or of the weights where there is no output.
	Scaled = "scaled"
	// Foreign figures come from another tool's file.
	Foreign = "foreign"
)

// Map says what each tensor's candidates cost and how much damage they do. It is
// JSON; its bytes depend on the figures alone.
type Map struct {
	Schema    string `json:"schema"`
	Estimator string `json:"estimator"`
	Source    Source `json:"source"`
	// Calibration is nil in maps that were imported.
	Calibration *Calibration `json:"calibration,omitempty"`
	// CodedOn is the hash of the text that calibrated methods coded with.
	CodedOn string `json:"coded_on,omitempty"`
	// Kernel is the level of the kernels that measured.
	Kernel string `json:"kernel,omitempty"`
	// Base is the hash of the recipe that all other tensors were stored by, ""
	// if they were left as they are. BaseDamage is the divergence of the whole.
	Base       string  `json:"base,omitempty"`
	BaseDamage float64 `json:"base_damage,omitempty"`
	Shard      *Shard  `json:"shard,omitempty"` // of a part
	// Drafter is that of a drafter's map, nil in those of models.
	Drafter *Drafting `json:"drafter,omitempty"`
	// KeptBytes and KeptParameters are those of tensors that are never coded.
	KeptBytes      int64    `json:"kept_bytes"`
	KeptParameters int64    `json:"kept_parameters"`
	Tensors        []Tensor `json:"tensors"` // in the order of the model
}

// Source is the checkpoint that a map belongs to.
type Source struct {
	Name       string `json:"name"`
	ModelType  string `json:"model_type,omitempty"`
	SHA256     string `json:"sha256"` // of config.json and all tensors
	Layers     int    `json:"layers"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"`
}

// Calibration is the text that damage was measured on.
type Calibration struct {
	SHA256    string         `json:"sha256"` // of the tokens
	Sequences int            `json:"sequences"`
	Tokens    int            `json:"tokens"` // of a sequence
	Seed      uint64         `json:"seed"`
	Domains   map[string]int `json:"domains"` // sequences of each
}

// Shard is a part of a map: the Index-th of Count, from 1 on.
type Shard struct {
	Index int `json:"index"`
	Count int `json:"count"`
}

// Tensor is a weight and its candidates.
type Tensor struct {
	Path       string      `json:"path"` // module, without .weight
	Class      quant.Class `json:"class"`
	Layer      int         `json:"layer"` // −1 outside of layers
	Shape      []int       `json:"shape"`
	Parameters int64       `json:"parameters"`
	Bytes      int64       `json:"bytes"` // as stored in the checkpoint
	// Reads is how often a round of a drafter reads the matrix, in its map alone:
	// 0 for a table of which it takes single rows.
	Reads      *float64      `json:"reads_per_round,omitempty"`
	Probe      *Probe        `json:"noise,omitempty"`
	Candidates []Measurement `json:"candidates"`
}

// Probe is what Gaussian noise on a tensor's weights did.
type Probe struct {
	WeightError   float64  `json:"weight_error"`
	OutputError   *float64 `json:"output_error,omitempty"`
	Damage        float64  `json:"damage"`
	StandardError float64  `json:"standard_error"`
}

// Measurement is a candidate format of a tensor.
type Measurement struct {
	quant.Format
	Bytes         int64   `json:"bytes"` // codes, scales and biases
	Damage        float64 `json:"damage"`
	StandardError float64 `json:"standard_error"`
	// Estimated says that damage was not measured, but worked out from errors.
	Estimated bool `json:"estimated,omitempty"`
	// Measured is what was measured where Settle has made damage of it: the
	// divergence of the whole base with this candidate in its place.
	Measured *float64 `json:"measured,omitempty"`
	// WeightError is Σ(w − ŵ)²/Σw². OutputError is the same of the module's
	// outputs, tr(E·H·Eᵀ)/tr(W·H·Wᵀ): on the calibration text, or for calibrated
	// methods on the text that they code with.
	WeightError float64  `json:"weight_error"`
	OutputError *float64 `json:"output_error,omitempty"`
	// Draft is what the candidate does to a drafter's drafts.
	Draft *Drafts `json:"draft,omitempty"`
}

// Name is the name of a format in tables: "affine 4-bit g64 rtn".
func Name(f quant.Format) string {
	s := f.Codec
	if f.Bits > 0 {
		s += fmt.Sprintf(" %d-bit", f.Bits)
	}
	if f.GroupSize > 0 {
		s += fmt.Sprintf(" g%d", f.GroupSize)
	}
	if f.Method != "" {
		s += " " + string(f.Method)
	}
	return s
}

// Marshal prints the map.
func (m *Map) Marshal() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(m); err != nil {
		return nil // numbers are finite, Check says
	}
	return b.Bytes()
}

// Parse reads a map strictly and checks it.
func Parse(data []byte) (*Map, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("sensitivity: not a map: %w (files of other tools go through import)", err)
	}
	if head.Schema != Schema {
		return nil, fmt.Errorf("sensitivity: the schema is %q, want %q (files of other tools go through import)", head.Schema, Schema)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var m Map
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("sensitivity: map: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("sensitivity: map: text after the object")
	}
	return &m, m.Check()
}

// Check refuses maps that cannot be right: damages that are negative or not
// finite, tensors named twice or without candidates, sizes that do not add up.
func (m *Map) Check() error {
	seen := map[string]bool{}
	parameters := m.KeptParameters
	for _, t := range m.Tensors {
		switch {
		case t.Path == "" || seen[t.Path]:
			return fmt.Errorf("sensitivity: map: tensor %q is named twice or not at all", t.Path)
		case t.Parameters <= 0 || t.Bytes <= 0:
			return fmt.Errorf("sensitivity: map: %s: %d parameters in %d bytes", t.Path, t.Parameters, t.Bytes)
		case len(t.Candidates) == 0:
			return fmt.Errorf("sensitivity: map: %s has no candidates (a map with gaps: measure it again)", t.Path)
		}
		seen[t.Path] = true
		parameters += t.Parameters
		names := map[string]bool{}
		for _, c := range t.Candidates {
			n := Name(c.Format)
			switch {
			case names[n]:
				return fmt.Errorf("sensitivity: map: %s: %s is listed twice", t.Path, n)
			case math.IsNaN(c.Damage) || math.IsInf(c.Damage, 0):
				return fmt.Errorf("sensitivity: map: %s: %s: damage is %v (measure it again)", t.Path, n, c.Damage)
			case c.Damage < 0:
				return fmt.Errorf("sensitivity: map: %s: %s: damage %v is negative (damage is a divergence, never below 0; if the file holds gains, import it and say so)", t.Path, n, c.Damage)
			case !(c.StandardError >= 0) || math.IsInf(c.StandardError, 0):
				return fmt.Errorf("sensitivity: map: %s: %s: standard error is %v", t.Path, n, c.StandardError)
			case c.Bytes <= 0:
				return fmt.Errorf("sensitivity: map: %s: %s: %d bytes", t.Path, n, c.Bytes)
			}
			names[n] = true
		}
	}
	if m.Shard == nil && parameters != m.Source.Parameters {
		return fmt.Errorf("sensitivity: map: tensors have %d parameters, the source %d (a map with gaps: merge all shards, or measure it again)", parameters, m.Source.Parameters)
	}
	return nil
}

// Whole is an error for a map of a part.
func (m *Map) Whole() error {
	if m.Shard != nil {
		return fmt.Errorf("sensitivity: the map is part %d of %d (merge all parts first)", m.Shard.Index, m.Shard.Count)
	}
	return nil
}

// Same is an error unless both maps are of one checkpoint, one text and one way
// to measure.
func (m *Map) Same(o *Map) error {
	switch {
	case m.Source.SHA256 != o.Source.SHA256:
		return fmt.Errorf("sensitivity: one map is of %s (%.12s…), the other of %s (%.12s…): different checkpoints", m.Source.Name, m.Source.SHA256, o.Source.Name, o.Source.SHA256)
	case (m.Calibration == nil) != (o.Calibration == nil) || m.Calibration != nil && m.Calibration.SHA256 != o.Calibration.SHA256:
		return fmt.Errorf("sensitivity: the maps were measured on different texts")
	case m.Estimator != o.Estimator || m.Kernel != o.Kernel || m.CodedOn != o.CodedOn || m.Base != o.Base || m.BaseDamage != o.BaseDamage:
		return fmt.Errorf("sensitivity: the maps were measured differently: %s on %s and %s on %s", m.Estimator, m.Kernel, o.Estimator, o.Kernel)
	}
	return nil
}

// Merge puts the parts of a map together, in any order. The result is that of a
// single run, byte for byte.
func Merge(parts ...*Map) (*Map, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("sensitivity: there is nothing to merge")
	}
	parts = slices.Clone(parts)
	for _, p := range parts {
		if p.Shard == nil {
			return nil, fmt.Errorf("sensitivity: one of the maps is whole, not a part")
		}
		if err := parts[0].Same(p); err != nil {
			return nil, err
		}
		if p.Shard.Count != parts[0].Shard.Count {
			return nil, fmt.Errorf("sensitivity: parts of %d and of %d", p.Shard.Count, parts[0].Shard.Count)
		}
	}
	slices.SortStableFunc(parts, func(a, b *Map) int { return cmp.Compare(a.Shard.Index, b.Shard.Index) })
	out := *parts[0]
	out.Shard, out.Tensors = nil, nil
	for i, p := range parts {
		if p.Shard.Index != i+1 {
			return nil, fmt.Errorf("sensitivity: part %d of %d is missing or given twice", i+1, p.Shard.Count)
		}
		out.Tensors = append(out.Tensors, p.Tensors...)
	}
	if n := parts[0].Shard.Count; len(parts) != n {
		return nil, fmt.Errorf("sensitivity: %d of %d parts are given", len(parts), n)
	}
	return &out, out.Check()
}
