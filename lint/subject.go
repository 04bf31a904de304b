package lint

import (
	"strings"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

// subject is all that is checked together.
type subject struct {
	path     string
	contract *chunking.Contract // nil for a lone package
	chunks   []*chunk
	pkgs     []*mlpackage.Package
}

// chunk is one package.
type chunk struct {
	name      string
	layers    int // decoder layers, 0 if unknown
	weights   int64
	program   *mil.Program
	features  map[string]mlpackage.Interface
	functions []*function
	verified  []mil.Finding
	constants []*constant // distinct ones, in order of first use
}

// function is one entry point with what rules ask again and again.
type function struct {
	*mil.Function
	chunk *chunk
	ops   []*mil.Op // in order of execution, nested blocks included
	uses  map[*mil.Value][]*mil.Op
}

func newChunk(name string, layers int, p *mlpackage.Package) *chunk {
	c := chunkOf(name, layers, p.Program)
	c.weights, c.features = p.Size.Weights, p.Features
	return c
}

// chunkOf makes a chunk of a program alone.
func chunkOf(name string, layers int, p *mil.Program) *chunk {
	c := &chunk{name: name, layers: layers, program: p, verified: mil.Check(p, true)}
	seen := map[mil.Const]bool{}
	for _, fname := range p.Names() {
		f := &function{Function: p.Functions[fname], chunk: c, uses: map[*mil.Value][]*mil.Op{}}
		keep := func(v *mil.Value, o *mil.Op, value string) {
			if v != nil && v.Const != nil && !seen[v.Const] {
				seen[v.Const] = true
				c.constants = append(c.constants, &constant{c: v.Const,
					at: place{chunk: name, function: fname, kind: o.Kind, op: o.Name, value: value}})
			}
		}
		f.Body.Walk(func(o *mil.Op) {
			f.ops = append(f.ops, o)
			if o.IsConst() {
				for _, v := range o.Outputs {
					keep(v, o, v.Name)
				}
			}
			for _, a := range o.Args {
				for _, v := range a.Values {
					f.uses[v] = append(f.uses[v], o)
					if v != nil && v.Inline() {
						keep(v, o, a.Param)
					}
				}
			}
		})
		c.functions = append(c.functions, f)
	}
	return c
}

// states lists the function's states.
func (f *function) states() []*mil.Value {
	var out []*mil.Value
	for _, v := range f.Inputs {
		if _, ok := v.Type.(mil.StateType); ok {
			out = append(out, v)
		}
	}
	return out
}

// stateful reports whether any function of the chunk has a state.
func (c *chunk) stateful() bool {
	for _, f := range c.functions {
		if len(f.states()) > 0 {
			return true
		}
	}
	return false
}

// computes reports whether o runs at every call. Constants and constexprs are
// done when the model is loaded.
func computes(o *mil.Op) bool { return !o.IsConst() && !isConstexpr(o) }

func isConstexpr(o *mil.Op) bool { return strings.HasPrefix(o.Kind, "constexpr_") }

// tensor is the type of what is bound to param; ok is false if nothing is.
func tensor(o *mil.Op, param string) (t mil.TensorType, ok bool) {
	if v := o.In(param); v != nil {
		return v.Tensor()
	}
	return t, false
}

// outTensor is the type of the first output.
func outTensor(o *mil.Op) (t mil.TensorType, ok bool) {
	if len(o.Outputs) == 0 {
		return t, false
	}
	return o.Out().Tensor()
}

// isConstant says whether v is known when the model is loaded.
func isConstant(v *mil.Value) bool {
	return v != nil && (v.Const != nil || v.Op != nil && isConstexpr(v.Op))
}

// intParam reads a constant integer scalar, or gives the default.
func intParam(o *mil.Op, param string, otherwise int) int {
	v := o.In(param)
	if v == nil || v.Const == nil {
		return otherwise
	}
	n, err := mil.ConstInts(v.Const)
	if err != nil || len(n) != 1 {
		return otherwise
	}
	return n[0]
}

// floatParam reads a constant floating point scalar.
func floatParam(o *mil.Op, param string) (float64, bool) {
	v := o.In(param)
	if v == nil || v.Const == nil {
		return 0, false
	}
	x, err := mil.ConstFloats(v.Const)
	if err != nil || len(x) != 1 {
		return 0, false
	}
	return x[0], true
}

// axisSize is the size of an axis, counted from the end if negative; Unknown if
// there is no such axis.
func axisSize(t mil.TensorType, axis int) int {
	if axis < 0 {
		axis += t.Rank()
	}
	if axis < 0 || axis >= t.Rank() {
		return mil.Unknown
	}
	return t.Shape[axis]
}
