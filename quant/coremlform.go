package quant

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Form is how Core ML keeps a matrix [Rows, Cols] of fp16 in a format: which
// constants, and which compile-time operators make the matrix of them.
type Form struct {
	Format     Format
	Rows, Cols int
	Constants  []Constant
	Ops        []FormOp // the first result of the last one is the matrix
	stored     int      // elements that are not left out
}

// Constant is a tensor of a form. Codes of fewer than 8 bits are one stream, the
// first in the lowest bits; the others are little-endian.
type Constant struct {
	Type  ElementType
	Shape []int
}

// Bytes is the size of the constant.
func (c Constant) Bytes() int64 {
	n := int64(c.Type.Bits)
	for _, d := range c.Shape {
		n *= int64(d)
	}
	return (n + 7) / 8
}

// ElementType is the type of a constant's elements: integers of 1, 2, 3, 4, 6 or
// 8 bits, or fp16.
type ElementType struct {
	Bits   int
	Signed bool
	Float  bool
}

var (
	fp16   = ElementType{16, true, true}
	bitmap = ElementType{Bits: 1}
)

// FormOp is a compile-time operator: a MIL constexpr op.
type FormOp struct {
	Kind   string
	Inputs []FormInput
}

// FormInput is an argument: a constant of the form, a result of an earlier
// operator, or a number.
type FormInput struct {
	Param    string
	From     Origin
	Index    int   // of the constant, or of the operator
	Result   int   // of the operator
	Constant int32 // a number
}

// Origin says what an argument is.
type Origin int

// Origins of arguments.
const (
	FromConstant Origin = iota
	FromOp
	FromNumber
)

// NewForm returns the form of a matrix in a Core ML format. What the format cannot
// hold is an error.
func NewForm(f Format, rows, cols int) (*Form, error) {
	if err := f.checkCoreML(); err != nil {
		return nil, fmt.Errorf("quant: %w", err)
	}
	m := &Form{Format: f, Rows: rows, Cols: cols, stored: rows * cols}
	if f.sparse() {
		var err error
		if m.stored, err = f.keeps(rows, cols); err != nil {
			return nil, err
		}
	}
	switch f.Codec {
	case "palette":
		return m, m.palette()
	case "linear":
		return m, m.linear()
	}
	mask, data := m.constant(bitmap, rows, cols), m.constant(fp16, m.stored)
	m.dense(constant("mask", mask), constant("nonzero_data", data))
	return m, nil
}

func constant(param string, i int) FormInput { return FormInput{Param: param, Index: i} }

func result(param string, op, i int) FormInput {
	return FormInput{Param: param, From: FromOp, Index: op, Result: i}
}

// constant adds a constant and returns its index.
func (m *Form) constant(t ElementType, shape ...int) int {
	m.Constants = append(m.Constants, Constant{t, shape})
	return len(m.Constants) - 1
}

// op adds an operator and returns its index.
func (m *Form) op(kind string, in ...FormInput) int {
	m.Ops = append(m.Ops, FormOp{kind, in})
	return len(m.Ops) - 1
}

// dense adds the operator that puts stored elements in place.
func (m *Form) dense(mask, data FormInput) {
	mask.Param, data.Param = "mask", "nonzero_data"
	m.op("constexpr_sparse_to_dense", mask, data)
}

func (m *Form) palette() error {
	f := m.Format
	if err := f.Palette().Check(m.Rows); err != nil {
		return err
	}
	vector := f.vector()
	codes := ElementType{Bits: f.Bits}
	mask, indices := 0, 0
	if f.sparse() {
		mask = m.constant(bitmap, m.Rows, m.Cols)
		indices = m.constant(codes, m.stored)
	} else {
		indices = m.constant(codes, m.Rows/vector, m.Cols)
	}
	groups := m.Rows / m.groupRows()
	shape := []int{groups, 1, 1 << f.Bits, vector}
	var lut FormInput
	if f.Table == "int8" {
		lut = result("lut", m.op("constexpr_blockwise_shift_scale",
			constant("data", m.constant(ElementType{8, true, false}, shape...)),
			constant("scale", m.constant(fp16, 1, 1, 1, 1))), 0)
	} else {
		lut = constant("lut", m.constant(fp16, shape...))
	}
	if f.sparse() {
		op := m.op("constexpr_lut_to_sparse", constant("indices_mask", mask), constant("indices_nonzero_data", indices), lut)
		m.dense(result("", op, 0), result("", op, 1))
		return nil
	}
	in := []FormInput{constant("indices", indices), lut}
	if vector > 1 {
		in = append(in, FormInput{Param: "vector_axis", From: FromNumber})
	}
	op := m.op("constexpr_lut_to_dense", in...)
	if f.ChannelScale {
		m.op("constexpr_blockwise_shift_scale", result("data", op, 0), constant("scale", m.constant(fp16, m.Rows, 1)))
	}
	return nil
}

// groupRows is the number of rows that share a table.
func (m *Form) groupRows() int {
	if m.Format.GroupSize == 0 {
		return m.Rows
	}
	return m.Format.GroupSize
}

func (m *Form) linear() error {
	l := m.Format.Linear()
	shape := []int{1, 1}
	switch l.Granularity {
	case PerChannel:
		shape[0] = m.Rows
	case PerBlock:
		if m.Cols%l.Block != 0 {
			return l.indivisible(m.Cols)
		}
		shape = []int{m.Rows, m.Cols / l.Block}
	}
	codes := ElementType{Bits: l.Bits, Signed: !l.Unsigned}
	in := []FormInput{}
	if m.Format.sparse() {
		in = append(in, constant("data_mask", m.constant(bitmap, m.Rows, m.Cols)), constant("nonzero_data", m.constant(codes, m.stored)))
	} else {
		in = append(in, constant("data", m.constant(codes, m.Rows, m.Cols)))
	}
	in = append(in, constant("scale", m.constant(fp16, shape...)))
	if l.HasOffset() {
		in = append(in, constant("offset", m.constant(codes, shape...)))
	}
	if m.Format.sparse() {
		op := m.op("constexpr_sparse_blockwise_shift_scale", in...)
		m.dense(result("", op, 0), result("", op, 1))
		return nil
	}
	m.op("constexpr_blockwise_shift_scale", in...)
	return nil
}

// Bytes is the size of all constants.
func (m *Form) Bytes() int64 {
	var n int64
	for _, c := range m.Constants {
		n += c.Bytes()
	}
	return n
}

// Indivisible reports whether groups, vectors or patterns of f do not divide a
// matrix.
func (f Format) Indivisible(rows, cols int) bool {
	group, block, pattern := 1, 1, 1
	if f.Codec == "palette" {
		group = max(f.GroupSize, f.vector())
	} else if f.GroupSize > 0 {
		block = f.GroupSize
	}
	if _, m, err := f.pattern(); err == nil {
		pattern = m
	}
	return rows%group != 0 || cols%block != 0 || cols%pattern != 0
}

// sparse reports whether some weights are left out.
func (f Format) sparse() bool { return f.Sparsity != 0 || f.Pattern != "" }

// pattern reads N:M.
func (f Format) pattern() (n, m int, err error) {
	a, b, ok := strings.Cut(f.Pattern, ":")
	n, e1 := strconv.Atoi(a)
	m, e2 := strconv.Atoi(b)
	if !ok || e1 != nil || e2 != nil || n < 1 || m <= n || m > 64 {
		return 0, 0, fmt.Errorf("pattern %q: want N:M, N of M neighbours left out, 1 ≤ N < M ≤ 64", f.Pattern)
	}
	return n, m, nil
}

// keeps is the number of weights of a matrix that are not left out.
func (f Format) keeps(rows, cols int) (int, error) {
	if f.Pattern == "" {
		return rows*cols - int(math.Floor(f.Sparsity*float64(rows*cols))), nil
	}
	n, m, err := f.pattern()
	if err == nil && cols%m != 0 {
		err = fmt.Errorf("quant: the last dimension is %d, which pattern %s does not divide (choose another one, or keep the tensor)", cols, f.Pattern)
	}
	return rows * cols / max(m, 1) * (m - n), err
}

// vector is the number of rows that one index stands for.
func (f Format) vector() int { return max(f.Vector, 1) }

// Palette is the palette that f describes.
func (f Format) Palette() Palette { return Palette{Bits: f.Bits, Rows: f.GroupSize, Vector: f.Vector} }

// Describe names a Core ML format in a few words.
func (f Format) Describe() string {
	var s string
	switch f.Codec {
	case "palette":
		s = f.Palette().String()
		if f.Table != "" && f.Table != "fp16" {
			s += ", " + f.Table + " tables"
		}
		if f.ChannelScale {
			s += ", a scale a row"
		}
		if f.Tables != "" && f.Tables != "kmeans" {
			s += ", " + f.Tables
		}
	case "linear":
		s = f.Linear().String()
	default:
		s = f.Codec
	}
	switch {
	case f.Pattern != "":
		s += ", " + f.Pattern + " left out"
	case f.Sparsity != 0:
		s += fmt.Sprintf(", %g %% left out", 100*f.Sparsity)
	}
	return s
}
