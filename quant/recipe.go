package quant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
)

// Recipe says how the tensors of a model are stored. It is JSON:
//
//	{
//	  "target": "mlx",
//	  "default": {"codec": "affine", "bits": 4, "group_size": 64, "method": "rtn"},
//	  "rules": [
//	    {"class": ["router"], "codec": "affine", "bits": 8, "group_size": 64, "optional": true},
//	    {"class": ["v", "down"], "layers": [0, 1, 16, 17], "bits": 6},
//	    {"path": ["model.layers.*.self_attn.o_proj"], "keep": true}
//	  ]
//	}
//
// A rule applies to the tensors that all of its class, path and layers name.
// The first rule that applies to a tensor decides; what it leaves out comes
// from default. In a path * stands for any characters but a dot, ** for any.
// Tensors that no rule names get default if they are the weights of embeddings
// and linear layers, and are kept otherwise. A rule that applies to no tensor
// is an error unless it is optional.
type Recipe struct {
	Target  string `json:"target"` // TargetMLX or TargetCoreML
	Default Format `json:"default"`
	// KeepIndivisible keeps weights that no rule names (but one of path ** alone)
	// and whose columns are not a multiple of the group size, as mlx-lm does;
	// otherwise they are errors.
	KeepIndivisible bool   `json:"keep_indivisible,omitempty"`
	Rules           []Rule `json:"rules,omitempty"`
}

// Targets of a recipe.
const (
	TargetMLX    = "mlx"
	TargetCoreML = "coreml"
)

// Format names a codec with its settings. Fields that a codec does not have
// must be left out.
type Format struct {
	// Codec is affine, mxfp4, mxfp8, nvfp4 or turboquant for MLX, of which the
	// last has no stock runtime; linear, palette or sparse for Core ML.
	Codec string `json:"codec,omitempty"`
	Bits  int    `json:"bits,omitempty"`
	// GroupSize is the number of columns that share a scale (affine), of
	// columns of a block (linear), of rows that share a table (palette). For
	// the last two 0 means a scale a row, a table a tensor.
	GroupSize int      `json:"group_size,omitempty"`
	Rounding  Rounding `json:"rounding,omitempty"` // affine: cpu or metal
	Method    Method   `json:"method,omitempty"`
	// Granularity of linear: tensor, channel or block.
	Granularity string `json:"granularity,omitempty"`
	// Unsigned and Asymmetric are forms of linear.
	Unsigned   bool `json:"unsigned,omitempty"`
	Asymmetric bool `json:"asymmetric,omitempty"`
	// Of palette: Vector is the number of rows that one index stands for (1, 2,
	// 4); Table is how entries are stored (fp16, int8); Tables how they are found
	// (kmeans: least squares, uniform: equal steps, unique: the weights'
	// own values, if they fit); ChannelScale divides every row by its largest
	// magnitude, which is stored.
	Vector       int    `json:"vector,omitempty"`
	Table        string `json:"table,omitempty"`
	Tables       string `json:"tables,omitempty"`
	ChannelScale bool   `json:"channel_scale,omitempty"`
	// Sparsity is the part of the weights, those of least magnitude, that are
	// left out and decoded as 0; Pattern N:M leaves out N of every M neighbours
	// in a row. With codec sparse the rest is fp16, otherwise codes.
	Sparsity float64 `json:"sparsity,omitempty"`
	Pattern  string  `json:"pattern,omitempty"`
}

// Rule gives some tensors another format.
type Rule struct {
	Class    []Class  `json:"class,omitempty"`
	Path     []string `json:"path,omitempty"`   // module paths, without .weight
	Layers   []int    `json:"layers,omitempty"` // tensors outside layers are not named
	Keep     bool     `json:"keep,omitempty"`
	Optional bool     `json:"optional,omitempty"`
	Format
}

// ParseRecipe reads a recipe strictly: unknown keys, codecs, classes and
// settings that a codec does not have are errors.
func ParseRecipe(data []byte) (*Recipe, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var r Recipe
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("quant: recipe: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("quant: recipe: text after the object")
	}
	return &r, r.Validate()
}

// Marshal prints the recipe.
func (r *Recipe) Marshal() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return nil // a struct of strings, numbers and lists
	}
	return b.Bytes()
}

// Validate checks everything that needs no model.
func (r *Recipe) Validate() error {
	if r.Target != TargetMLX && r.Target != TargetCoreML {
		return fmt.Errorf("quant: recipe: target is %q (want mlx or coreml)", r.Target)
	}
	if err := r.Default.check(r.Target); err != nil {
		return fmt.Errorf("quant: recipe: default: %w", err)
	}
	for i := range r.Rules {
		if err := r.checkRule(&r.Rules[i]); err != nil {
			return fmt.Errorf("quant: recipe: rule %d: %w", i, err)
		}
	}
	return nil
}

func (r *Recipe) checkRule(u *Rule) error {
	if len(u.Class) == 0 && len(u.Path) == 0 && u.Layers == nil {
		return fmt.Errorf("names no tensors (give class, path or layers)")
	}
	for _, c := range u.Class {
		if !knownClass(c) {
			return fmt.Errorf("class %q is unknown (want one of %v)", c, Classes)
		}
	}
	for _, p := range u.Path {
		if p == "" || strings.HasSuffix(p, ".weight") {
			return fmt.Errorf("path %q: want a module path such as model.layers.*.mlp.up_proj", p)
		}
	}
	if u.Keep {
		if u.Format != (Format{}) {
			return fmt.Errorf("keep and a format exclude each other")
		}
		return nil
	}
	return r.merged(u.Format).check(r.Target)
}

// merged fills what f leaves out from the default. Settings of another codec
// than the default's are not taken over.
func (r *Recipe) merged(f Format) Format {
	d := r.Default
	if f.Method == "" {
		f.Method = d.Method
	}
	if f.Codec != "" && f.Codec != d.Codec {
		return f
	}
	f.Codec = d.Codec
	if f.Bits == 0 {
		f.Bits = d.Bits
	}
	if f.GroupSize == 0 {
		f.GroupSize = d.GroupSize
	}
	if f.Rounding == "" {
		f.Rounding = d.Rounding
	}
	if f.Granularity == "" {
		f.Granularity = d.Granularity
	}
	f.Unsigned = f.Unsigned || d.Unsigned
	f.Asymmetric = f.Asymmetric || d.Asymmetric
	f.mergeCoreML(d)
	return f
}

// check refuses formats that do not exist.
func (f Format) check(target string) error {
	if _, err := ParseMethod(string(f.Method)); err != nil {
		return trim(err)
	}
	switch {
	case target == TargetMLX && f.hasCoreML():
		return fmt.Errorf("vector, table, tables, channel_scale, sparsity and pattern are Core ML's: MLX has none of them")
	case target == TargetMLX && f.Codec == "affine":
		if f.Granularity != "" || f.Unsigned || f.Asymmetric {
			return fmt.Errorf("codec affine has no granularity, unsigned or asymmetric")
		}
		_, err := NewAffine(f.Bits, f.GroupSize, f.Rounding)
		return trim(err)
	case target == TargetMLX && f.Codec == "turboquant":
		return f.checkTurbo()
	case target == TargetMLX:
		c, err := NewFloat(f.Codec)
		if err != nil {
			return fmt.Errorf("codec %q is unknown to MLX (want affine, mxfp4, mxfp8, nvfp4 or turboquant)", f.Codec)
		}
		if f.Bits != 0 && f.Bits != c.bits || f.GroupSize != 0 && f.GroupSize != c.group {
			return fmt.Errorf("codec %s has %d bits and groups of %d only", f.Codec, c.bits, c.group)
		}
		if f.Rounding != "" || f.Granularity != "" || f.Unsigned || f.Asymmetric {
			return fmt.Errorf("codec %s has no rounding, granularity, unsigned or asymmetric", f.Codec)
		}
		return nil
	}
	return f.checkCoreML()
}

// trim drops the package from an error that gets a longer one in front.
func trim(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "quant: "))
}

// Codec is the codec of an MLX format.
func (f Format) codec() (Codec, error) {
	if f.Codec == "affine" {
		return NewAffine(f.Bits, f.GroupSize, f.Rounding)
	}
	if f.Codec == "turboquant" {
		return NewTurbo(f.Bits, f.GroupSize)
	}
	return NewFloat(f.Codec)
}

// Target is a tensor that a recipe may name.
type Target struct {
	Path  string // of the module, without .weight
	Class Class
	Layer int // −1 outside of layers
	DType checkpoint.DType
	Shape []int
	// Weight says that it is the weight of an embedding or a linear layer.
	Weight bool
}

// Choice is what a recipe decides for a tensor.
type Choice struct {
	Keep   bool
	Format Format
	Codec  Codec // nil if kept, and for Core ML
	Named  bool  // by a rule, other than one of path ** alone
	// Explicit says that a rule set codec, bits or group size: mlx-lm's config
	// lists such modules, be they as the default or not.
	Explicit bool
}

// Plan decides for every tensor of a model. All errors are reported at once.
func (r *Recipe) Plan(targets []Target) ([]Choice, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	var bad []string
	used := make([]bool, len(r.Rules))
	out := make([]Choice, len(targets))
	for i, t := range targets {
		at := slices.IndexFunc(r.Rules, func(u Rule) bool { return u.names(t) })
		// A rule that comes too late is still not a misspelt one.
		for j := range r.Rules {
			used[j] = used[j] || r.Rules[j].names(t) && (t.Weight || r.Rules[j].Keep || slices.Contains(r.Rules[j].Path, t.Path))
		}
		c := &out[i]
		c.Named = at >= 0 && !r.Rules[at].everything()
		if at >= 0 {
			u := r.Rules[at].Format
			c.Explicit = u.Codec != "" || u.Bits != 0 || u.GroupSize != 0
		}
		switch {
		case at >= 0 && r.Rules[at].Keep, !t.Weight && at < 0:
			c.Keep = true
			continue
		case at >= 0:
			c.Format = r.merged(r.Rules[at].Format)
		default:
			c.Format = r.merged(r.Default)
		}
		if !t.Weight {
			if !slices.Contains(r.Rules[at].Path, t.Path) {
				c.Keep = true // classes, layers and patterns take in norms and biases, too
				continue
			}
			bad = append(bad, fmt.Sprintf("%s: shape %v is not the weight of an embedding or a linear layer (keep it)", t.Path, t.Shape))
			continue
		}
		if r.Target != TargetMLX {
			continue
		}
		codec, err := c.Format.codec()
		if err == nil && !c.Named && r.KeepIndivisible && !divides(codec, t.Shape) {
			c.Keep = true
			continue
		}
		if err == nil {
			_, err = codec.Parts(t.DType, t.Shape)
		}
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", t.Path, trim(err)))
			continue
		}
		c.Codec = codec
	}
	for j, u := range r.Rules {
		if !used[j] && !u.Optional {
			bad = append(bad, fmt.Sprintf("rule %d (%s) applies to no tensor (correct it, or mark it optional)", j, u.describe()))
		}
	}
	if len(bad) > 0 {
		const show = 8
		more := ""
		if len(bad) > show {
			more = fmt.Sprintf("\n  and %d more", len(bad)-show)
			bad = bad[:show]
		}
		return nil, fmt.Errorf("quant: the recipe does not fit the model:\n  %s%s", strings.Join(bad, "\n  "), more)
	}
	return out, nil
}

// divides reports whether the groups of c divide the columns of a matrix.
func divides(c Codec, shape []int) bool {
	g := 1
	switch c := c.(type) {
	case Affine:
		g = c.Group
	case Turbo:
		g = max(c.Group, 1)
	case Float:
		g = c.group
	}
	return len(shape) > 0 && shape[len(shape)-1]%g == 0
}

// names reports whether the rule applies to t.
func (u *Rule) names(t Target) bool {
	if len(u.Class) > 0 && !slices.Contains(u.Class, t.Class) {
		return false
	}
	if u.Layers != nil && !slices.Contains(u.Layers, t.Layer) {
		return false
	}
	return len(u.Path) == 0 || slices.ContainsFunc(u.Path, func(p string) bool { return glob(p, t.Path) })
}

// everything reports whether the rule is as good as a default.
func (u *Rule) everything() bool {
	return len(u.Class) == 0 && u.Layers == nil && slices.Equal(u.Path, []string{"**"})
}

func (u *Rule) describe() string {
	var s []string
	if len(u.Class) > 0 {
		s = append(s, fmt.Sprintf("class %v", u.Class))
	}
	if len(u.Path) > 0 {
		s = append(s, fmt.Sprintf("path %v", u.Path))
	}
	if u.Layers != nil {
		s = append(s, fmt.Sprintf("layers %v", u.Layers))
	}
	return strings.Join(s, ", ")
}

// glob matches a module path: * is any run without a dot, ** any run.
func glob(pattern, s string) bool {
	for {
		i := strings.IndexByte(pattern, '*')
		if i < 0 {
			return pattern == s
		}
		if !strings.HasPrefix(s, pattern[:i]) {
			return false
		}
		s, pattern = s[i:], pattern[i+1:]
		wide := strings.HasPrefix(pattern, "*")
		if wide {
			pattern = pattern[1:]
		}
		for k := 0; ; k++ {
			if glob(pattern, s[k:]) {
				return true
			}
			if k == len(s) || s[k] == '.' && !wide {
				return false
			}
		}
	}
}
