package mlpackage

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/mil"
)

// A Feature is what the model says about one input, output or state of a
// function. Where the type in the program has unknown dimensions, an input needs
// Shapes or Ranges.
type Feature struct {
	Name     string
	Doc      string
	Optional bool
	Type     mil.TensorType // default shape; zero for images and dictionaries
	Shapes   [][]int        // the shapes an input may take, if enumerated
	Ranges   []Range        // bounds of each dimension, if a range

	// other keeps a type or a default value that this package does not
	// interpret, to be written back unchanged.
	other *coremlproto.FeatureType
}

// Range bounds one dimension, both ends included; Max is Unknown for no bound.
type Range struct{ Min, Max int }

// Opaque reports a feature that is no array (an image, say): it is written back
// unchanged and not compared with the program.
func (f Feature) Opaque() bool { return f.other != nil }

var arrayTypes = map[mil.DType]coremlproto.ArrayFeatureType_ArrayDataType{
	mil.Float16: coremlproto.ArrayFeatureType_FLOAT16,
	mil.Float32: coremlproto.ArrayFeatureType_FLOAT32,
	mil.Float64: coremlproto.ArrayFeatureType_DOUBLE,
	mil.Int8:    coremlproto.ArrayFeatureType_INT8,
	mil.Int32:   coremlproto.ArrayFeatureType_INT32,
}

func readFeatures(list []*coremlproto.FeatureDescription) ([]Feature, error) {
	var out []Feature
	for _, d := range list {
		f, err := readFeature(d)
		if err != nil {
			return nil, fmt.Errorf("feature %q: %w", d.GetName(), err)
		}
		out = append(out, f)
	}
	return out, nil
}

func readFeature(d *coremlproto.FeatureDescription) (Feature, error) {
	t := d.GetType()
	f := Feature{Name: d.GetName(), Doc: d.GetShortDescription(), Optional: t.GetIsOptional()}
	array := t.GetMultiArrayType()
	if s := t.GetStateType(); s != nil {
		array = s.GetArrayType()
	}
	if array == nil || array.GetDefaultOptionalValue() != nil {
		if t.GetType() == nil {
			return f, errors.New("type is missing or unknown")
		}
		f.other = t
		return f, nil
	}
	if err := errors.Join(known(d, "feature"), known(t, "feature type"), known(array, "array type")); err != nil {
		return f, err
	}
	for dtype, code := range arrayTypes {
		if code == array.GetDataType() {
			f.Type.DType = dtype
		}
	}
	if f.Type.DType == mil.InvalidDType {
		return f, fmt.Errorf("unknown array data type %v", array.GetDataType())
	}
	var err error
	if f.Type.Shape, err = readShape(array.GetShape()); err != nil {
		return f, err
	}
	for _, s := range array.GetEnumeratedShapes().GetShapes() {
		shape, err := readShape(s.GetShape())
		if err != nil {
			return f, err
		}
		f.Shapes = append(f.Shapes, shape)
	}
	for _, r := range array.GetShapeRange().GetSizeRanges() {
		hi := r.GetUpperBound()
		if hi < 0 {
			hi = mil.Unknown
		}
		if r.GetLowerBound() > math.MaxInt32 || hi > math.MaxInt32 || hi >= 0 && uint64(hi) < r.GetLowerBound() {
			return f, fmt.Errorf("size range [%d, %d]", r.GetLowerBound(), r.GetUpperBound())
		}
		f.Ranges = append(f.Ranges, Range{int(r.GetLowerBound()), int(hi)})
	}
	return f, nil
}

func readShape(dims []int64) ([]int, error) {
	var out []int
	for _, d := range dims {
		if d < 0 || d > math.MaxInt32 {
			return nil, fmt.Errorf("dimension of size %d", d)
		}
		out = append(out, int(d))
	}
	return out, nil
}

// describe makes the feature of a program value. extra, which may be zero, adds
// what the program does not know.
func describe(v *mil.Value, role string, spec int, extra Feature) (*coremlproto.FeatureDescription, error) {
	d := &coremlproto.FeatureDescription{Name: v.Name, ShortDescription: extra.Doc}
	if extra.other != nil {
		d.Type = proto.CloneOf(extra.other)
		return d, nil
	}
	t, ok := v.Tensor()
	if !ok {
		return nil, fmt.Errorf("%v cannot be described", v.Type)
	}
	code, ok := arrayTypes[t.DType]
	switch {
	case !ok:
		return nil, fmt.Errorf("%v cannot cross the model's interface (cast it to fp16, fp32 or int32)", t)
	case t.DType == mil.Float16 && spec < mil.CoreML6.SpecVersion():
		return nil, fmt.Errorf("%v needs specification version 7, the file has %d (cast it to fp32)", t, spec)
	case t.DType == mil.Int8 && role != roleState && spec < mil.CoreML9.SpecVersion():
		return nil, fmt.Errorf("%v needs specification version 10, the file has %d (cast it to int32)", t, spec)
	}
	array := &coremlproto.ArrayFeatureType{DataType: code}
	unknown := slices.Contains(t.Shape, mil.Unknown)
	switch role {
	case roleState:
		if t.DType != mil.Float16 {
			return nil, fmt.Errorf("%v: a state must be fp16", t)
		}
		if unknown || spec < mil.CoreML8.SpecVersion() {
			return nil, fmt.Errorf("%v: a state needs a fixed shape and specification version 9 (the file has %d)", t, spec)
		}
		setShape(array, t.Shape)
		d.Type = &coremlproto.FeatureType{Type: &coremlproto.FeatureType_StateType{StateType: &coremlproto.StateFeatureType{
			Type: &coremlproto.StateFeatureType_ArrayType{ArrayType: array}}}}
		return d, nil
	case roleInput:
		if t.Rank() == 0 {
			return nil, errors.New("an input cannot have rank 0 (use shape [1])")
		}
		if unknown {
			if err := setFlexible(array, t, extra); err != nil {
				return nil, err
			}
		} else {
			setShape(array, t.Shape)
		}
	default:
		if !unknown {
			setShape(array, t.Shape)
		}
	}
	d.Type = &coremlproto.FeatureType{
		Type:       &coremlproto.FeatureType_MultiArrayType{MultiArrayType: array},
		IsOptional: extra.Optional,
	}
	return d, nil
}

const (
	roleInput  = "input"
	roleOutput = "output"
	roleState  = "state"
)

func setShape(a *coremlproto.ArrayFeatureType, shape []int) { a.Shape = int64s(shape) }

func int64s(shape []int) []int64 {
	var out []int64
	for _, n := range shape {
		out = append(out, int64(n))
	}
	return out
}

// setFlexible describes an input whose shape the program leaves open.
func setFlexible(a *coremlproto.ArrayFeatureType, t mil.TensorType, extra Feature) error {
	if !t.Compatible(mil.TensorType{DType: t.DType, Shape: extra.Type.Shape}) || slices.Contains(extra.Type.Shape, mil.Unknown) {
		return fmt.Errorf("%v has unknown dimensions: its feature needs a default shape that fits", t)
	}
	setShape(a, extra.Type.Shape)
	switch {
	case len(extra.Shapes) > 0 && len(extra.Ranges) > 0:
		return errors.New("both shapes and ranges are given")
	case len(extra.Shapes) > 0:
		list := &coremlproto.ArrayFeatureType_EnumeratedShapes{}
		for _, s := range extra.Shapes {
			if !t.Compatible(mil.TensorType{DType: t.DType, Shape: s}) {
				return fmt.Errorf("shape %v does not fit %v", s, t)
			}
			list.Shapes = append(list.Shapes, &coremlproto.ArrayFeatureType_Shape{Shape: int64s(s)})
		}
		a.ShapeFlexibility = &coremlproto.ArrayFeatureType_EnumeratedShapes_{EnumeratedShapes: list}
	case len(extra.Ranges) == t.Rank():
		list := &coremlproto.ArrayFeatureType_ShapeRange{}
		for _, r := range extra.Ranges {
			list.SizeRanges = append(list.SizeRanges, &coremlproto.SizeRange{LowerBound: uint64(r.Min), UpperBound: int64(r.Max)})
		}
		a.ShapeFlexibility = &coremlproto.ArrayFeatureType_ShapeRange_{ShapeRange: list}
	default:
		return fmt.Errorf("%v has unknown dimensions: its feature needs shapes, or a range for each dimension", t)
	}
	return nil
}
