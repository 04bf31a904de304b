package pass

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// TagResidual is the tag by which a model says how ScaleResidual must treat
// an op; ResidualSource, ResidualSink and ResidualNorm are its values.
const (
	TagResidual = "residual"
	// ResidualSource marks a const whose values enter the residual stream
	// linearly: an embedding table, the gain of a post-norm, the weight and
	// bias of a projection back into the stream.
	ResidualSource = "source"
	// ResidualSink marks a const that is multiplied with the stream and whose
	// product leaves it: the weight of a gate, say.
	ResidualSink = "sink"
	// ResidualNorm marks a norm that reads the stream.
	ResidualNorm = "norm"
)

// ScaleResidual multiplies the residual stream by s, a power of two, so that
// it fits fp16. Constants tagged "source" are multiplied by s, those tagged "sink" by 1/s
// and the epsilon
// of norms tagged "norm" by s²: since norm(s·x, s²·ε) = norm(x, ε), every norm
// gives what it gave before, exactly up to underflow. Whatever else reads the
// stream must be able to live with the factor; the tags are the model's claim
// that nothing does.
func ScaleResidual(p *mil.Program, s float64) error {
	if !powerOfTwo(s) {
		return fmt.Errorf("residual scale %v is no power of two", s)
	}
	memo := map[any]mil.Const{} // keeps constants shared between functions shared
	found := false
	for _, name := range p.Names() {
		f := p.Functions[name]
		r := &rescaler{s: s, names: namer(f), memo: memo}
		if err := r.block(f.Body); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found = found || r.sources > 0
	}
	if !found && s != 1 {
		return fmt.Errorf("no const is tagged %s=%s: there is no residual stream to scale", TagResidual, ResidualSource)
	}
	return nil
}

type rescaler struct {
	s       float64
	names   *mil.Namer
	memo    map[any]mil.Const
	sources int
}

func (r *rescaler) block(b *mil.Block) error {
	var out []*mil.Op
	eps := map[*mil.Value]*mil.Value{} // scaled twins, defined in this block
	for _, o := range b.Ops {
		for _, n := range o.Blocks {
			if err := r.block(n); err != nil {
				return err
			}
		}
		switch tag := o.Tags[TagResidual]; tag {
		case "":
		case ResidualSource:
			r.sources++
			if err := r.scale(o, r.s); err != nil {
				return err
			}
		case ResidualSink:
			if err := r.scale(o, 1/r.s); err != nil {
				return err
			}
		case ResidualNorm:
			op, err := r.norm(o, eps)
			if err != nil {
				return err
			}
			if op != nil {
				out = append(out, op)
			}
		default:
			return fmt.Errorf("%s %q: unknown tag %s=%s", o.Kind, o.Name, TagResidual, tag)
		}
		out = append(out, o)
	}
	b.Ops = out
	return nil
}

// scale multiplies a const by the factor.
func (r *rescaler) scale(o *mil.Op, by float64) error {
	if !o.IsConst() {
		return fmt.Errorf("%s %q: only a const can be a residual source or sink", o.Kind, o.Name)
	}
	v := o.Out()
	k := scaledKey{keyOf(v.Const), by}
	m, ok := r.memo[k]
	if !ok || !m.Type().Equal(v.Const.Type()) {
		var err error
		if m, err = Scale(o.Name, v.Const, by); err != nil {
			return err
		}
		r.memo[k] = m
	}
	v.Const = m
	return nil
}

// scaledKey identifies a scaled constant.
type scaledKey struct {
	of any
	by float64
}

// norm rebinds the epsilon of o. If the const is new it returns its op, to be
// placed before o.
func (r *rescaler) norm(o *mil.Op, eps map[*mil.Value]*mil.Value) (*mil.Op, error) {
	v := o.In("epsilon")
	if v == nil || v.Const == nil || v.Const.Type().NumElements() != 1 {
		return nil, fmt.Errorf("%s %q: a residual norm needs a constant epsilon", o.Kind, o.Name)
	}
	if t := eps[v]; t != nil {
		o.Set("epsilon", t)
		return nil, nil
	}
	x, err := mil.ConstFloats(v.Const)
	if err != nil {
		return nil, fmt.Errorf("%s %q: epsilon: %w", o.Kind, o.Name, err)
	}
	c := smallScalar(v.Const.Type(), x[0]*r.s*r.s)
	if v.Inline() {
		o.Set("epsilon", mil.Inline(c))
		return nil, nil
	}
	op := newConst(r.names.Unique(v.Name+"_scaled"), c)
	eps[v] = op.Out()
	o.Set("epsilon", op.Out())
	return op, nil
}
