package pass

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/quant"
)

// MinCompressed is the number of elements up to which Compress leaves a weight
// alone: it would save next to nothing.
const MinCompressed = 2048

// CompressedWeight is a weight that Compress replaced.
type CompressedWeight struct {
	Name   string // of the tensor in the checkpoint
	Format quant.Format
	Type   mil.TensorType
	Bytes  int64 // codes and parameters
	// Stats are complete once the program has been written.
	Stats quant.Stats
}

// Compress replaces weights by constexpr ops over codes: constants [out, in] of
// fp16 that a linear op multiplies by, or that gather takes rows of, and that
// come from a tensor of the checkpoint. choose says how the tensor of a name is
// stored, or that it is kept.
//
// Codes are computed when they are written, a weight at a time; weights that
// functions share are coded once. Compress returns the weights that it replaced,
// in the order of the program.
func Compress(p *mil.Program, choose func(name string) (quant.Format, bool)) ([]*CompressedWeight, error) {
	return CompressCoded(p, choose, nil)
}

// Coded is the data of a form's constants, found before.
type Coded struct {
	Load  func() ([][]byte, error)
	Stats quant.Stats
}

// CompressCoded is Compress with weights that have been coded already, by the name
// of the tensor. Where the weight is scaled by a power of two, so are its codes.
func CompressCoded(p *mil.Program, choose func(name string) (quant.Format, bool), coded map[string]*Coded) ([]*CompressedWeight, error) {
	var list []*CompressedWeight
	done := map[any]*compressed{}
	for _, name := range p.Names() {
		f := p.Functions[name]
		c := &compressor{uses: usesOf(f), names: namer(f), opset: f.Opset, choose: choose, coded: coded, done: done}
		if err := c.block(f.Body); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, c.list...)
	}
	return list, nil
}

type compressor struct {
	uses   map[*mil.Value][]use
	names  *mil.Namer
	opset  mil.Opset
	choose func(string) (quant.Format, bool)
	coded  map[string]*Coded
	done   map[any]*compressed
	list   []*CompressedWeight
}

func (c *compressor) block(b *mil.Block) error {
	var out []*mil.Op
	for _, o := range b.Ops {
		for _, n := range o.Blocks {
			if err := c.block(n); err != nil {
				return err
			}
		}
		if o.IsConst() && c.eligible(o) {
			name := weightName(o.Out().Const)
			if format, ok := c.choose(name); ok {
				ops, err := c.replace(o, name, format)
				if err != nil {
					return err
				}
				out = append(out, ops...)
			}
		}
		out = append(out, o)
	}
	b.Ops = out
	return nil
}

// weightName is the name of the tensor of the checkpoint that a constant is, ""
// if it is none.
func weightName(c mil.Const) string {
	for {
		if n, ok := c.(interface{ Name() string }); ok {
			return n.Name()
		}
		k, ok := c.(*CastConst)
		if !ok {
			return ""
		}
		c = k.Src
	}
}

func (c *compressor) eligible(o *mil.Op) bool {
	v := o.Out()
	t := v.Const.Type()
	if t.DType != mil.Float16 || t.Rank() != 2 || t.NumElements() <= MinCompressed || weightName(v.Const) == "" {
		return false
	}
	us := c.uses[v]
	for _, u := range us {
		if u.op == nil || !(u.op.Kind == "linear" && u.param == "weight") && !(u.op.Kind == "gather" && u.param == "x") {
			return false
		}
	}
	return len(us) > 0
}

// replace turns the const o into constexpr ops; it returns what comes before the
// last of them.
func (c *compressor) replace(o *mil.Op, name string, format quant.Format) ([]*mil.Op, error) {
	if c.opset < mil.CoreML8 {
		return nil, fmt.Errorf("const %q: compressed weights need CoreML8, the function has %v", o.Name, c.opset)
	}
	v := o.Out()
	w := c.done[keyOf(v.Const)]
	if w == nil {
		var err error
		if w, err = newCompressed(name, v.Const, format); err != nil {
			return nil, fmt.Errorf("const %q: tensor %q: %w", o.Name, name, err)
		}
		w.coded = c.coded[name]
		c.done[keyOf(v.Const)] = w
		c.list = append(c.list, w.report)
	}
	v.Const = nil
	var ops []*mil.Op
	consts := make([]*mil.Value, len(w.parts))
	made := make([]*mil.Op, len(w.form.Ops))
	for i, f := range w.form.Ops {
		op := o
		if i < len(made)-1 {
			op = &mil.Op{Name: c.names.Unique(o.Name + "_" + strings.TrimPrefix(f.Kind, "constexpr_"))}
		}
		op.Kind, made[i] = f.Kind, op
		for _, in := range f.Inputs {
			switch in.From {
			case quant.FromConstant:
				if consts[in.Index] == nil {
					k := newConst(c.names.Unique(o.Name+"_"+in.Param), w.parts[in.Index])
					ops = append(ops, k)
					consts[in.Index] = k.Out()
				}
				op.Set(in.Param, consts[in.Index])
			case quant.FromOp:
				op.Set(in.Param, made[in.Index].Outputs[in.Result])
			default:
				op.Set(in.Param, mil.Inline(mil.NewInts(mil.Int32, nil, int(in.Constant))))
			}
		}
		types, err := mil.InferTypes(op, c.opset)
		if err != nil {
			return nil, err
		}
		if op == o {
			v.Type = types[0]
			continue
		}
		for j, t := range types {
			name := op.Name
			if j > 0 {
				name = c.names.Unique(op.Name + "_data")
			}
			op.Outputs = append(op.Outputs, &mil.Value{Name: name, Type: t, Op: op})
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// compressed is a weight whose codes are computed when one of its parts is
// written.
type compressed struct {
	report *CompressedWeight
	form   *quant.Form
	src    mil.Const
	coded  *Coded // nil: to be coded
	parts  []*compressedPart

	mu sync.Mutex
}

// compressedPart is one of the constants that stand for a weight.
type compressedPart struct {
	w    *compressed
	i    int
	t    mil.TensorType
	data []byte
}

// Type is the part's type.
func (p *compressedPart) Type() mil.TensorType { return p.t }

// smallPart is the number of bytes up to which a part is kept once written.
const smallPart = 1 << 20

// WriteTo writes packed elements.
func (p *compressedPart) WriteTo(out io.Writer) (int64, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.data == nil {
		if err := p.w.encode(); err != nil {
			return 0, fmt.Errorf("pass: compress tensor %q: %w", p.w.report.Name, err)
		}
	}
	n, err := out.Write(p.data)
	if len(p.data) > smallPart {
		p.data = nil
	}
	return int64(n), err
}

func newCompressed(name string, src mil.Const, format quant.Format) (*compressed, error) {
	t := src.Type()
	form, err := quant.NewForm(format, t.Shape[0], t.Shape[1])
	if err != nil {
		return nil, err
	}
	c := &compressed{src: src, form: form,
		report: &CompressedWeight{Name: name, Format: format, Type: t, Bytes: form.Bytes()}}
	for i, k := range form.Constants {
		d, err := elementType(k.Type)
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, &compressedPart{w: c, i: i, t: mil.T(d, k.Shape...)})
	}
	return c, nil
}

// elementType is the type of MIL that an element type is.
func elementType(t quant.ElementType) (mil.DType, error) {
	switch {
	case t.Float && t.Bits == 16:
		return mil.Float16, nil
	case t.Signed && t.Bits == 4:
		return mil.Int4, nil
	case t.Signed && t.Bits == 8:
		return mil.Int8, nil
	case !t.Signed && !t.Float:
		if d, ok := unsignedTypes[t.Bits]; ok {
			return d, nil
		}
	}
	return mil.InvalidDType, fmt.Errorf("there are no elements of %+v", t)
}

var unsignedTypes = map[int]mil.DType{1: mil.UInt1, 2: mil.UInt2, 3: mil.UInt3, 4: mil.UInt4, 6: mil.UInt6, 8: mil.UInt8}
