package sensitivity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/quant"
)

// Sign says what a foreign file's sensitivities are.
type Sign string

// The signs. mlx-optiq writes damage when its reference is the original model and
// gain when it is a quantized one, and its files do not say which; mlx-lm
// writes the gain of the wider format for a million weights.
const (
	SignUnknown Sign = ""
	SignDamage  Sign = "damage" // of storing the tensor so
	SignGain    Sign = "gain"   // over the narrowest format
)

// ImportOptions say what a foreign file leaves open.
type ImportOptions struct {
	Sign Sign
	// Group is the group size of the formats, 0 for what the file says, or 64.
	Group int
	// Low and High are the widths of mlx-lm's file, 0 for its defaults 4 and 5.
	Low, High int
	// KeepMissing leaves tensors that the file lacks as they are; otherwise they
	// are an error.
	KeepMissing bool
	Warn        func(string)
}

// optiqLayer is an entry of mlx-optiq's sensitivity.json and checkpoint.
type optiqLayer struct {
	Name          string          `json:"layer_name"`
	Sensitivities map[int]float64 `json:"sensitivities"`
	Parameters    int64           `json:"param_count"`
}

// optiqFile is mlx-optiq's sensitivity.json.
type optiqFile struct {
	BaseModel string       `json:"base_model"`
	Bits      []int        `json:"candidate_bits"`
	GroupSize int          `json:"group_size"`
	Metric    string       `json:"metric"`
	Layers    []optiqLayer `json:"layers"`
}

// foreign is a file's content: damage or gain by path and width.
type foreign struct {
	by    map[string]map[int]float64
	group int
}

// Import makes a map of a file of mlx-optiq (sensitivity.json, or its
// checkpoint) or mlx-lm (…_sensitivities.json) for the checkpoint m.
//
// Where the figures of a file neither fall nor rise with bits throughout, their
// sign is unclear, and it is refused until o.Sign tells.
func Import(m *Model, data []byte, o ImportOptions) (*Map, error) {
	f, sign, err := parseForeign(m, data, o)
	if err != nil {
		return nil, err
	}
	if o.Sign != SignUnknown {
		sign = o.Sign
	}
	if sign == SignUnknown {
		return nil, fmt.Errorf("sensitivity: it is unclear whether the file's figures are damage or gain: they neither fall nor rise with bits throughout (say which)")
	}
	group := o.Group
	if group == 0 {
		group = max(f.group, 0)
	}
	if group == 0 {
		group = 64
	}
	out := &Map{Schema: Schema, Estimator: Foreign, Source: m.Source, KeptBytes: m.keptBytes, KeptParameters: m.keptParameters}
	var missing []string
	for _, w := range m.Weights {
		t := w.entry()
		v, ok := f.by[w.Path]
		if !ok {
			missing = append(missing, w.Path)
			out.KeptBytes += t.Bytes
			out.KeptParameters += t.Parameters
			continue
		}
		delete(f.by, w.Path)
		var widths []int
		for b := range v {
			widths = append(widths, b)
		}
		slices.Sort(widths)
		most := math.Inf(-1)
		for _, x := range v {
			most = max(most, x)
		}
		for _, b := range widths {
			if b > 8 {
				continue // kept, which every tensor may be
			}
			form := quant.Format{Codec: "affine", Bits: b, GroupSize: group, Method: quant.RTN}
			c, err := codecOf(form)
			if err != nil {
				return nil, err
			}
			size, err := quant.Bytes(c, w.Tensor.DType(), w.Tensor.Shape())
			if err != nil {
				return nil, fmt.Errorf("sensitivity: %s: %w", w.Path, err)
			}
			d := v[b]
			if sign == SignGain {
				d = most - d
			}
			switch {
			case d != d || math.IsInf(d, 0):
				return nil, fmt.Errorf("sensitivity: %s: %d bits: the figure is %v", w.Path, b, v[b])
			case d < 0 && d > -1e-9:
				d = 0
			case d < 0:
				return nil, fmt.Errorf("sensitivity: %s: %d bits: damage %v is negative (is it gain?)", w.Path, b, d)
			}
			t.Candidates = append(t.Candidates, Measurement{Format: form, Bytes: size, Damage: d})
		}
		if len(t.Candidates) == 0 {
			return nil, fmt.Errorf("sensitivity: %s has no figures", w.Path)
		}
		out.Tensors = append(out.Tensors, t)
	}
	if len(f.by) > 0 {
		names := make([]string, 0, len(f.by))
		for name := range f.by {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("sensitivity: the file has %d tensors that the checkpoint lacks, such as %s (another model's file?)", len(names), names[0])
	}
	if len(missing) > 0 && !o.KeepMissing {
		return nil, fmt.Errorf("sensitivity: the file has gaps: nothing about %d tensors, such as %s (measure them, or keep them as they are)", len(missing), missing[0])
	}
	return out, out.Check()
}

// parseForeign reads any of the files, and guesses the sign where it is clear.
func parseForeign(m *Model, data []byte, o ImportOptions) (*foreign, Sign, error) {
	f := &foreign{by: map[string]map[int]float64{}}
	var pairs [][2]json.RawMessage
	if err := json.Unmarshal(data, &pairs); err == nil && len(pairs) > 0 {
		low, high := o.Low, o.High
		if low == 0 {
			low = 4
		}
		if high == 0 {
			high = 5
		}
		negative := 0
		for i, p := range pairs {
			var name string
			var v float64
			if json.Unmarshal(p[0], &name) != nil || json.Unmarshal(p[1], &v) != nil {
				return nil, "", fmt.Errorf("sensitivity: entry %d is not a name and a number", i)
			}
			path := strings.TrimPrefix(name, "language_model.")
			k := slices.IndexFunc(m.Weights, func(w Weight) bool { return w.Path == path })
			if k < 0 {
				return nil, "", fmt.Errorf("sensitivity: the checkpoint has no tensor %s (another model's file?)", name)
			}
			if v < 0 {
				negative++
			}
			// For a million weights; an estimate below 0 says that more bits gain
			// nothing.
			f.by[path] = map[int]float64{low: 0, high: max(0, v) * float64(m.Weights[k].entry().Parameters) / 1e6}
		}
		if o.Warn != nil && negative > 0 {
			o.Warn(fmt.Sprintf("%d of %d figures are negative and taken as 0", negative, len(pairs)))
		}
		if 2*negative > len(pairs) {
			if o.Sign == SignUnknown {
				return nil, "", fmt.Errorf("sensitivity: most figures are negative, so that it is unclear what they are (say which)")
			}
		}
		return f, SignGain, nil
	}
	var file optiqFile
	if err := json.Unmarshal(data, &file); err != nil || len(file.Layers) == 0 {
		if err := json.Unmarshal(data, &file.Layers); err != nil || len(file.Layers) == 0 {
			return nil, "", fmt.Errorf("sensitivity: the file is neither mlx-optiq's nor mlx-lm's sensitivities")
		}
	}
	f.group = file.GroupSize
	falls, rises := true, true
	for _, l := range file.Layers {
		path := strings.TrimPrefix(l.Name, "language_model.")
		if f.by[path] != nil {
			return nil, "", fmt.Errorf("sensitivity: %s is listed twice", l.Name)
		}
		f.by[path] = l.Sensitivities
		var widths []int
		for b := range l.Sensitivities {
			widths = append(widths, b)
		}
		slices.Sort(widths)
		for k, b := range widths {
			v := l.Sensitivities[b]
			if v < 0 {
				falls, rises = false, false
			}
			if k == 0 {
				// Gains start at 0, damages do not.
				if v > 1e-9 {
					rises = false
				} else {
					falls = false
				}
				continue
			}
			before := l.Sensitivities[widths[k-1]]
			falls, rises = falls && v <= before, rises && v >= before
		}
	}
	switch {
	case falls:
		return f, SignDamage, nil
	case rises:
		return f, SignGain, nil
	}
	return f, SignUnknown, nil
}

// column is a tensor's candidate with so many bits in one group size and method.
func (t *Tensor) column(bits, group int, method quant.Method) *Measurement {
	for i := range t.Candidates {
		c := &t.Candidates[i]
		if c.Codec == "affine" && c.Bits == bits && c.GroupSize == group && c.Method == method {
			return c
		}
	}
	return nil
}

// ExportOptiQ prints damages as mlx-optiq's sensitivity.json, with the original
// as reference: sensitivities are damages and fall with bits.
func (m *Map) ExportOptiQ(group int, method quant.Method) ([]byte, error) {
	out := optiqFile{BaseModel: m.Source.Name, GroupSize: group, Metric: "kl_divergence_vs_reference"}
	for i := range m.Tensors {
		t := &m.Tensors[i]
		l := optiqLayer{t.Path, map[int]float64{}, t.Parameters}
		for _, c := range t.Candidates {
			if c.Codec == "affine" && c.GroupSize == group && c.Method == method {
				l.Sensitivities[c.Bits] = c.Damage
				if !slices.Contains(out.Bits, c.Bits) {
					out.Bits = append(out.Bits, c.Bits)
				}
			}
		}
		if len(l.Sensitivities) == 0 {
			return nil, fmt.Errorf("sensitivity: %s has no affine candidates in groups of %d with method %s", t.Path, group, method)
		}
		out.Layers = append(out.Layers, l)
	}
	slices.Sort(out.Bits)
	return indented(out)
}

// ExportMLX prints gains as mlx-lm's …_sensitivities.json: what high gains over
// low, for a million weights.
func (m *Map) ExportMLX(low, high, group int, method quant.Method) ([]byte, error) {
	var out [][2]any
	for i := range m.Tensors {
		t := &m.Tensors[i]
		a, b := t.column(low, group, method), t.column(high, group, method)
		if a == nil || b == nil {
			return nil, fmt.Errorf("sensitivity: %s has no affine candidates of %d and %d bits in groups of %d with method %s", t.Path, low, high, group, method)
		}
		out = append(out, [2]any{t.Path, (a.Damage - b.Damage) / (float64(t.Parameters) / 1e6)})
	}
	return indented(out)
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// optiqMetadata is mlx-optiq's optiq_metadata.json.
type optiqMetadata struct {
	Method    string              `json:"method"`
	BaseModel string              `json:"base_model"`
	Reference string              `json:"reference"`
	Target    float64             `json:"target_bpw"`
	Achieved  float64             `json:"achieved_bpw"`
	High      int                 `json:"n_high_bits"`
	Low       int                 `json:"n_low_bits"`
	PerLayer  map[string]optiqBit `json:"per_layer"`
}

type optiqBit struct {
	Bits      int      `json:"bits"`
	GroupSize int      `json:"group_size"`
	KL        *float64 `json:"kl,omitempty"`
}

// ImportMetadata makes a recipe of mlx-optiq's optiq_metadata.json: 16 bits are
// kept, tensors that it does not name get its widest format, as mlx-optiq does.
func ImportMetadata(data []byte) (*quant.Recipe, error) {
	var f optiqMetadata
	if err := json.Unmarshal(data, &f); err != nil || len(f.PerLayer) == 0 {
		return nil, fmt.Errorf("sensitivity: not an optiq_metadata.json: it has no per_layer")
	}
	names := make([]string, 0, len(f.PerLayer))
	for n := range f.PerLayer {
		names = append(names, n)
	}
	slices.Sort(names)
	groups := map[optiqBit][]string{}
	var order []optiqBit
	widest := optiqBit{}
	for _, n := range names {
		b := f.PerLayer[n]
		b.KL = nil
		if groups[b] == nil {
			order = append(order, b)
		}
		groups[b] = append(groups[b], n)
		if b.Bits <= 8 && b.Bits > widest.Bits {
			widest = b
		}
	}
	if widest.Bits == 0 {
		return nil, fmt.Errorf("sensitivity: optiq_metadata.json quantizes nothing")
	}
	r := quant.Uniform(widest.Bits, widest.GroupSize)
	for _, b := range order {
		if b == widest {
			continue
		}
		rule := quant.Rule{Path: groups[b]}
		if b.Bits > 8 {
			rule.Keep = true
		} else {
			rule.Format = quant.Format{Bits: b.Bits, GroupSize: b.GroupSize}
		}
		r.Rules = append(r.Rules, rule)
	}
	return r, r.Validate()
}
