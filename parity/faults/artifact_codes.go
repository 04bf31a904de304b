package faults

import (
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/mil"
)

// codeFaults are mistakes of how compressed weights are stored. The compressed
// form of a bundle has palettes in gate and up, blocks of 32 with offsets in q
// and o, and a scale a channel in down.
func codeFaults() []Fault {
	gate := []string{"codes"}
	return []Fault{
		{
			Name: "palette-axis", Family: Artifact, Form: formCodes, Gates: gate, Sites: []string{"model_layers_1_mlp_gate_proj_weight"},
			What: "the tables of a palette belong to groups of columns, not of rows",
			files: func(b *bundle) error {
				return b.inLayer(1, func(f *function) error {
					o, err := f.compressed(name(1, "gate"))
					if err != nil {
						return err
					}
					lut, codes := o.In("lut"), o.In("indices")
					t, _ := lut.Tensor()
					w, _ := codes.Tensor()
					v, err := mil.ConstFloats(lut.Const)
					if err != nil {
						return err
					}
					// As many columns a table as there were rows.
					groups := w.Shape[1] * t.Shape[0] / w.Shape[0]
					shape := append([]int{1, groups}, t.Shape[2:]...)
					c := mil.NewFloats(t.DType, shape, v[:mil.Volume(shape)]...)
					lut.Const, lut.Type = c, c.Type()
					return nil
				})
			},
		},
		{
			Name: "palette-of-neighbour", Family: Artifact, Form: formCodes, Gates: gate, Sites: []string{"model_layers_1_mlp_gate_proj_weight"},
			What: "rows look their values up in the table of the next group",
			files: recode(1, "gate", "lut", func(t mil.TensorType, x mil.Const) (mil.Const, error) {
				v, err := mil.ConstFloats(x)
				n := len(v) / t.Shape[0]
				return mil.NewFloats(t.DType, t.Shape, append(slices.Clone(v[n:]), v[:n]...)...), err
			}),
		},
		{
			Name: "palette-nibble-order", Family: Artifact, Form: formCodes, Gates: gate, Sites: []string{"model_layers_1_mlp_up_proj_weight"},
			What:  "of two 4-bit codes of a palette in a byte the first has the high bits",
			files: recode(1, "up", "indices", swapNibbles),
		},
		{
			Name: "nibble-order", Family: Artifact, Form: formCodes, Gates: gate, Sites: []string{"model_layers_1_self_attn_o_proj_weight"},
			What:  "of two 4-bit integers in a byte the first has the high bits",
			files: recode(1, "attn_out", "data", swapNibbles),
		},
		{
			Name: "zero-point-sign", Family: Artifact, Form: formCodes, Gates: gate, Sites: []string{"model_layers_1_self_attn_o_proj_weight"},
			What: "zero points are added, not subtracted",
			files: recode(1, "attn_out", "offset", func(t mil.TensorType, x mil.Const) (mil.Const, error) {
				v, err := mil.ConstInts(x)
				top := 1 << t.DType.Bits()
				for i := range v {
					v[i] = (top - v[i]) % top
				}
				return mil.NewInts(t.DType, t.Shape, v...), err
			}),
		},
		{
			Name: "scale-of-neighbour-group", Family: Artifact, Form: formCodes, Gates: gate, Sites: []string{"model_layers_1_self_attn_o_proj_weight"},
			What: "codes are multiplied by the scale of the next group",
			files: recode(1, "attn_out", "scale", func(t mil.TensorType, x mil.Const) (mil.Const, error) {
				v, err := mil.ConstFloats(x)
				return mil.NewFloats(t.DType, t.Shape, append(slices.Clone(v[1:]), v[0])...), err
			}),
		},
		{
			Name: "scale-of-neighbour-channel", Family: Artifact, Form: formCodes, Gates: gate, Sites: []string{"model_layers_1_mlp_down_proj_weight"},
			What: "rows of 8-bit codes are multiplied by the scale of the next row",
			files: recode(1, "mlp_out", "scale", func(t mil.TensorType, x mil.Const) (mil.Const, error) {
				v, err := mil.ConstFloats(x)
				return mil.NewFloats(t.DType, t.Shape, append(slices.Clone(v[1:]), v[0])...), err
			}),
		},
		{
			Name: "codes-of-other-weight", Family: Artifact, Form: formCodes, Gates: gate, Sites: []string{"model_layers_1_mlp_gate_proj_weight"},
			What: "the codes of two compressed weights of one shape are swapped",
			files: func(b *bundle) error {
				return b.inLayer(1, func(f *function) error {
					g, err := f.compressed(name(1, "gate"))
					if err != nil {
						return err
					}
					u, err := f.compressed(name(1, "up"))
					if err != nil {
						return err
					}
					a, c := g.In("indices"), u.In("indices")
					g.Set("indices", c)
					u.Set("indices", a)
					return order(f, g, c)
				})
			},
		},
	}
}

// compressed is the constexpr that an op's weight comes from.
func (f *function) compressed(op string) (*mil.Op, error) {
	o, err := f.op(op)
	if err != nil {
		return nil, err
	}
	w := o.In("weight")
	if w == nil || w.Op == nil || !strings.HasPrefix(w.Op.Kind, "constexpr_") {
		return nil, fmt.Errorf("the weight of %q is not compressed", op)
	}
	return w.Op, nil
}

// recode changes one operand of a compressed weight in every function.
func recode(layer int, op, param string, change func(mil.TensorType, mil.Const) (mil.Const, error)) func(*bundle) error {
	return func(b *bundle) error {
		return b.inLayer(layer, func(f *function) error {
			o, err := f.compressed(name(layer, op))
			if err != nil {
				return err
			}
			v := o.In(param)
			if v == nil || v.Const == nil {
				return fmt.Errorf("%s %q has no %s", o.Kind, o.Name, param)
			}
			t, _ := v.Tensor()
			c, err := change(t, v.Const)
			if err != nil {
				return err
			}
			v.Const, v.Type = c, c.Type()
			return nil
		})
	}
}

// swapNibbles exchanges the halves of every byte.
func swapNibbles(t mil.TensorType, x mil.Const) (mil.Const, error) {
	v, err := mil.ConstInts(x)
	for i := 0; i+1 < len(v); i += 2 {
		v[i], v[i+1] = v[i+1], v[i]
	}
	return mil.NewInts(t.DType, t.Shape, v...), err
}

// order moves the op of a constant in front of the op that reads it now.
func order(f *function, reader *mil.Op, v *mil.Value) error {
	if v.Op == nil {
		return nil
	}
	from, to := slices.Index(f.Body.Ops, v.Op), slices.Index(f.Body.Ops, reader)
	if from < to {
		return nil
	}
	f.Body.Ops = slices.Delete(f.Body.Ops, from, from+1)
	f.Body.Ops = slices.Insert(f.Body.Ops, to, v.Op)
	return nil
}
