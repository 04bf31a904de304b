package decompress

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// constexpr returns the decoder of output i of a constexpr op.
func constexpr(op *mil.Op, i int, o Options) (*Tensor, error) {
	in := operands{op, o}
	switch op.Kind {
	case "constexpr_affine_dequantize":
		return in.affine()
	case "constexpr_blockwise_shift_scale":
		data, err := in.tensor("data")
		if err != nil {
			return nil, err
		}
		return in.shiftScale(data.Type, data.src)
	case "constexpr_lut_to_dense":
		return in.lut()
	case "constexpr_cast":
		src, err := in.tensor("source_val")
		if err != nil {
			return nil, err
		}
		return &Tensor{mil.TensorType{DType: mil.Float32, Shape: src.Type.Shape}, src.src}, nil
	case "constexpr_sparse_to_dense":
		s, err := in.spread("mask", "nonzero_data")
		if err != nil {
			return nil, err
		}
		return s.dense(), nil
	}
	s, err := in.sparse()
	if err != nil {
		return nil, err
	}
	if i == 0 {
		return s.maskTensor(), nil
	}
	return s.nonzero(), nil
}

// operands resolves the inputs of an op.
type operands struct {
	op *mil.Op
	o  Options
}

func (in operands) tensor(param string) (*Tensor, error) {
	v := in.op.In(param)
	if v == nil {
		return nil, fmt.Errorf("input %s is missing", param)
	}
	t, err := of(v, in.o)
	if err != nil {
		return nil, fmt.Errorf("input %s: %w", param, err)
	}
	return t, nil
}

func (in operands) optional(param string) (*Tensor, error) {
	if in.op.In(param) == nil {
		return nil, nil
	}
	return in.tensor(param)
}

func (in operands) ints(param string) ([]int, error) {
	v := in.op.In(param)
	if v == nil || v.Const == nil {
		return nil, fmt.Errorf("input %s is missing", param)
	}
	return mil.ConstInts(v.Const)
}

// affine is scale·(quantized_data − zero_point), scalar or along axis,
// evaluated in float32 and rounded once.
func (in operands) affine() (*Tensor, error) {
	data, err := in.tensor("quantized_data")
	if err != nil {
		return nil, err
	}
	ax, err := in.ints("axis")
	if err != nil {
		return nil, err
	}
	if len(ax) != 1 {
		return nil, fmt.Errorf("axis is %v, want one number", ax)
	}
	axis, err := mil.Axis(ax[0], data.Type.Rank())
	if err != nil {
		return nil, err
	}
	d := data.Type.Shape[axis]
	var par [2][]float32
	var dtype mil.DType
	for i, name := range []string{"scale", "zero_point"} {
		t, err := in.tensor(name)
		if err != nil {
			return nil, err
		}
		par[i] = t.All()
		if i == 0 {
			dtype = t.Type.DType
		}
		if t.Type.Rank() > 1 || len(par[i]) != 1 && len(par[i]) != d {
			return nil, fmt.Errorf("%s is %v, want a scalar or %d entries for axis %d", name, t.Type, d, axis)
		}
	}
	n := max(len(par[0]), len(par[1]))
	for i := range par {
		if len(par[i]) < n {
			par[i] = slices.Repeat(par[i], n)
		}
	}
	groups := slices.Repeat([]int{1}, data.Type.Rank())
	groups[axis] = n
	b, err := newBlocks("scale", data.Type.Shape, groups)
	if err != nil {
		return nil, err
	}
	s := &scaled{data: data.src, blocks: b, scale: vectorOf(par[0]), offset: vectorOf(par[1]), half: dtype == mil.Float16 && !in.o.Exact, once: true}
	s.prepare()
	return &Tensor{mil.TensorType{DType: dtype, Shape: data.Type.Shape}, s}, nil
}

// shiftScale is scale·(data − offset), one of both for each block.
func (in operands) shiftScale(t mil.TensorType, data source) (*Tensor, error) {
	scale, err := in.tensor("scale")
	if err != nil {
		return nil, err
	}
	offset, err := in.optional("offset")
	if err != nil {
		return nil, err
	}
	b, err := newBlocks("scale", t.Shape, scale.Type.Shape)
	if err != nil {
		return nil, err
	}
	d := scale.Type.DType
	s := &scaled{data: data, blocks: b, scale: scale, half: d == mil.Float16 && !in.o.Exact}
	if offset != nil {
		if !slices.Equal(offset.Type.Shape, scale.Type.Shape) {
			return nil, fmt.Errorf("offset is %v, want the shape of scale %v", offset.Type, scale.Type)
		}
		s.offset = offset
	}
	s.prepare()
	return &Tensor{mil.TensorType{DType: d, Shape: t.Shape}, s}, nil
}
