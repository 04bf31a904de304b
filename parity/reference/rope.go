package reference

import (
	"math"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/internal/elementary"
)

// Rope describes rotary position embeddings of one kind of layer.
type Rope struct {
	Type  string  // "default", "linear", "llama3" or "proportional"
	Theta float64 // base of the frequencies
	// Factor divides frequencies: all of them (linear, proportional), or those
	// whose wavelength is long (llama3).
	Factor float64
	// Partial is the part of the pairs that turn (proportional only): the
	// others have frequency 0.
	Partial float64
	// The rest is used by llama3 only.
	LowFreqFactor, HighFreqFactor float64
	OriginalMaxPositions          int
}

// readRope reads the rope of a model that has one for all layers, in either
// spelling.
func readRope(o *object) Rope {
	theta := o.numberOr("rope_theta", 0)
	if t := o.numberOr("partial_rotary_factor", 1); t != 1 {
		o.fail("partial_rotary_factor: %v is not supported (only 1, the whole head)", t)
	}
	scaling, parameters := o.object("rope_scaling"), o.object("rope_parameters")
	if scaling != nil && parameters != nil {
		o.fail("rope_scaling and rope_parameters are both set (keep one)")
		return Rope{}
	}
	at := parameters
	if at == nil {
		at = scaling
	}
	r := Rope{Type: "default", Theta: theta}
	if at != nil {
		r = readRopeObject(at, theta)
		o.adopt(at)
	}
	if r.Theta == 0 {
		o.missing("rope_theta")
	}
	return r
}

// readRopeObject reads rope_scaling, rope_parameters or one entry of it.
// outer is the theta given beside the object; 0 if there is none. more are
// rope types of one family only.
func readRopeObject(o *object, outer float64, more ...string) Rope {
	r := Rope{Theta: o.numberOr("rope_theta", outer)}
	if outer != 0 && r.Theta != outer {
		o.fail("rope_theta: %v, but %v beside this object (keep one)", r.Theta, outer)
	}
	legacy := o.textOr("type", "")
	r.Type = o.textOr("rope_type", legacy)
	switch {
	case r.Type == "":
		r.Type = "default"
	case legacy != "" && legacy != r.Type:
		o.fail("type %q and rope_type %q disagree", legacy, r.Type)
	}
	known := append([]string{"default", "linear", "llama3"}, more...)
	if !slices.Contains(known, r.Type) {
		o.fail("rope_type: %q is not supported (supported: %s)", r.Type, strings.Join(known, ", "))
		return r
	}
	if r.Type == "proportional" {
		if r.Partial = o.number("partial_rotary_factor"); r.Partial > 1 {
			o.fail("partial_rotary_factor: %v is more than the whole head", r.Partial)
		}
		r.Factor = o.numberOr("factor", 1)
	} else if t := o.numberOr("partial_rotary_factor", 1); t != 1 {
		o.fail("partial_rotary_factor: %v is not supported with rope_type %q (only 1, the whole head)", t, r.Type)
	}
	switch r.Type {
	case "linear":
		r.Factor = o.number("factor")
	case "llama3":
		r.Factor = o.number("factor")
		r.LowFreqFactor = o.number("low_freq_factor")
		r.HighFreqFactor = o.number("high_freq_factor")
		r.OriginalMaxPositions = o.size("original_max_position_embeddings")
		if o.err == nil && r.HighFreqFactor <= r.LowFreqFactor {
			o.fail("high_freq_factor: %v is not greater than low_freq_factor %v", r.HighFreqFactor, r.LowFreqFactor)
		}
	}
	o.refuseRest(func(string) bool { return false })
	return r
}

// readGemma3Rope reads the two ropes of Gemma 3. In the older spelling
// rope_theta and rope_scaling belong to the full layers and
// rope_local_base_freq to the sliding ones; in the newer one rope_parameters
// has an entry a layer type.
func readGemma3Rope(o *object, c *Config) {
	const globalTheta, localTheta = 1e6, 1e4

	outer := o.numberOr("rope_theta", 0)
	local := o.numberOr("rope_local_base_freq", 0)
	c.FullRope = Rope{Type: "default", Theta: outer}
	c.SlidingRope = Rope{Type: "default", Theta: local}
	scaling, parameters := o.object("rope_scaling"), o.object("rope_parameters")
	switch {
	case scaling != nil && parameters != nil:
		o.fail("rope_scaling and rope_parameters are both set (keep one)")
	case scaling != nil:
		c.FullRope = readRopeObject(scaling, outer)
		o.adopt(scaling)
	case parameters != nil:
		if full := parameters.object(FullAttention.String()); full != nil {
			c.FullRope = readRopeObject(full, outer)
			parameters.adopt(full)
		}
		if sliding := parameters.object(SlidingAttention.String()); sliding != nil {
			c.SlidingRope = readRopeObject(sliding, local)
			parameters.adopt(sliding)
		}
		parameters.refuseRest(func(string) bool { return false })
		o.adopt(parameters)
	}
	if c.FullRope.Theta == 0 {
		c.FullRope.Theta = globalTheta
	}
	if c.SlidingRope.Theta == 0 {
		c.SlidingRope.Theta = localTheta
	}
}

// Frequencies returns the headDim/2 angular frequencies, in float32 step by
// step, as transformers computes them: theta^(−2i/headDim), then the scaling.
// The llama3 rule keeps frequencies whose wavelength is short against the
// original context, divides those whose wavelength is long, and blends in
// between. The proportional rule keeps the exponents of the whole head and
// lets only the first Partial·headDim/2 pairs turn.
func (r Rope) Frequencies(headDim int) []float32 {
	f := make([]float32, headDim/2)
	for i := range f {
		exponent := float32(2*i) / float32(headDim)
		f[i] = 1 / float32(elementary.Pow(r.Theta, float64(exponent)))
	}
	factor := float32(r.Factor)
	switch r.Type {
	case "linear":
		for i := range f {
			f[i] /= factor
		}
	case "proportional":
		turning := int(r.Partial * float64(headDim) / 2)
		for i := range f {
			f[i] /= factor
		}
		clear(f[turning:])
	case "llama3":
		context := float32(r.OriginalMaxPositions)
		longest := float32(float64(r.OriginalMaxPositions) / r.LowFreqFactor)
		shortest := float32(float64(r.OriginalMaxPositions) / r.HighFreqFactor)
		for i, w := range f {
			wavelength := float32(2*math.Pi) / w
			switch {
			case wavelength < shortest:
			case wavelength > longest:
				f[i] = w / factor
			default:
				keep := (context/wavelength - float32(r.LowFreqFactor)) / float32(r.HighFreqFactor-r.LowFreqFactor)
				f[i] = float32((1-keep)*w/factor) + float32(keep*w)
			}
		}
	}
	return f
}

// ropeTable holds the cosine and sine of every angle: row = position − first,
// column = frequency.
type ropeTable struct{ cos, sin *Matrix }

// table covers positions from first on.
func (r Rope) table(first, positions, headDim int) ropeTable {
	f := r.Frequencies(headDim)
	t := ropeTable{cos: NewMatrix(positions, len(f)), sin: NewMatrix(positions, len(f))}
	for p := range positions {
		cos, sin := t.cos.Row(p), t.sin.Row(p)
		for i, w := range f {
			angle := float64(float32(first+p) * w)
			cos[i], sin[i] = float32(elementary.Cos(angle)), float32(elementary.Sin(angle))
		}
	}
	return t
}

// rotate turns every head of row: pairs are (i, i+headDim/2), the "rotate
// half" layout of Hugging Face checkpoints. index is a row of the table.
func (t ropeTable) rotate(row []float32, index, headDim int) {
	cos, sin := t.cos.Row(index), t.sin.Row(index)
	half := headDim / 2
	for head := 0; head < len(row); head += headDim {
		lo, hi := row[head:head+half], row[head+half:head+headDim]
		for i := range lo {
			a, b := lo[i], hi[i]
			lo[i] = float32(a*cos[i]) - float32(b*sin[i])
			hi[i] = float32(b*cos[i]) + float32(a*sin[i])
		}
	}
}
