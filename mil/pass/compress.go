package pass

import (
	"fmt"
	"io"
	"sync"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/quant"
)

// minCompressed is the number of elements up to which a weight is left alone:
// compressing it would save next to nothing.
const minCompressed = 2048

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
	var list []*CompressedWeight
	done := map[any]*compressed{}
	for _, name := range p.Names() {
		f := p.Functions[name]
		c := &compressor{uses: usesOf(f), names: namer(f), opset: f.Opset, choose: choose, done: done}
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
	if t.DType != mil.Float16 || t.Rank() != 2 || t.NumElements() <= minCompressed || weightName(v.Const) == "" {
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

// replace turns the const o into a constexpr op; it returns the consts that
// come before it.
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
		c.done[keyOf(v.Const)] = w
		c.list = append(c.list, w.report)
	}
	o.Kind, v.Const = w.kind, nil
	var ops []*mil.Op
	for _, p := range w.parts {
		k := newConst(c.names.Unique(o.Name+"_"+p.param), p)
		ops = append(ops, k)
		o.Set(p.param, k.Out())
	}
	types, err := mil.InferTypes(o, c.opset)
	if err != nil {
		return nil, err
	}
	v.Type = types[0]
	return ops, nil
}

// compressed is a weight whose codes are computed when one of its parts is
// written.
type compressed struct {
	report     *CompressedWeight
	kind       string
	src        mil.Const
	rows, cols int
	parts      []*compressedPart
	encode     func(c *compressed) error

	mu sync.Mutex
}

// compressedPart is one of the constants that stand for a weight.
type compressedPart struct {
	w     *compressed
	param string
	t     mil.TensorType
	data  []byte
	large bool // let go once written
}

// Type is the part's type.
func (p *compressedPart) Type() mil.TensorType { return p.t }

// WriteTo writes packed elements.
func (p *compressedPart) WriteTo(out io.Writer) (int64, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.data == nil {
		p.w.report.Stats = quant.Stats{}
		if err := p.w.encode(p.w); err != nil {
			for _, q := range p.w.parts {
				q.data = nil
			}
			return 0, fmt.Errorf("pass: compress tensor %q: %w", p.w.report.Name, err)
		}
	}
	n, err := out.Write(p.data)
	if p.large {
		p.data = nil
	}
	return int64(n), err
}

func (c *compressed) add(param string, d mil.DType, large bool, shape ...int) {
	p := &compressedPart{w: c, param: param, t: mil.T(d, shape...), large: large}
	c.parts = append(c.parts, p)
	c.report.Bytes += p.t.NumBytes()
}

func newCompressed(name string, src mil.Const, format quant.Format) (*compressed, error) {
	t := src.Type()
	c := &compressed{src: src, rows: t.Shape[0], cols: t.Shape[1],
		report: &CompressedWeight{Name: name, Format: format, Type: t}}
	if format.Codec == "palette" {
		return c, c.palette(quant.Palette{Bits: format.Bits, Rows: format.GroupSize})
	}
	return c, c.linear(format.Linear(), format.Method)
}

func (c *compressed) linear(l quant.Linear, m quant.Method) error {
	params := map[quant.Granularity][2]int{quant.PerTensor: {1, 1}, quant.PerChannel: {c.rows, 1}}
	shape, ok := params[l.Granularity]
	if !ok {
		if l.Block < 1 || c.cols%l.Block != 0 {
			return fmt.Errorf("the last dimension is %d, which blocks of %d do not divide (choose another block, or keep the tensor)", c.cols, l.Block)
		}
		shape = [2]int{c.rows, c.cols / l.Block}
	}
	d := mil.Int8
	switch {
	case l.Bits == 4 && l.Unsigned:
		d = mil.UInt4
	case l.Bits == 4:
		d = mil.Int4
	case l.Unsigned:
		d = mil.UInt8
	}
	c.kind = "constexpr_blockwise_shift_scale"
	c.add("data", d, true, c.rows, c.cols)
	c.add("scale", mil.Float16, false, shape[:]...)
	if l.HasOffset() {
		c.add("offset", d, false, shape[:]...)
	}
	// A unit is a row, or all of them where they share a scale.
	unit := 1
	if l.Granularity == quant.PerTensor {
		unit = c.rows
	}
	c.encode = func(c *compressed) error {
		codes := make([]byte, c.rows*c.cols)
		scale := make([]byte, 2*shape[0]*shape[1])
		offset := make([]byte, shape[0]*shape[1])
		each := len(offset) / (c.rows / unit)
		err := c.each(c.rows/unit, func() func(int, *quant.Stats) error {
			var buf reader
			w := make([]uint16, unit*c.cols)
			return func(u int, s *quant.Stats) error {
				err := c.read(u*unit, unit, &buf, func(x []uint16, off int) error {
					copy(w[off-u*unit*c.cols:], x)
					return nil
				})
				if err != nil {
					return err
				}
				q, err := l.Quantize(w, unit, c.cols, m)
				if err != nil {
					return err
				}
				s.Add(q.Stats)
				for i, x := range q.Codes {
					codes[u*unit*c.cols+i] = byte(x)
				}
				for i, x := range q.Scale {
					scale[2*(u*each+i)], scale[2*(u*each+i)+1] = byte(x), byte(x>>8)
				}
				for i, x := range q.Offset {
					offset[u*each+i] = byte(x)
				}
				return nil
			}
		})
		c.parts[0].data, c.parts[1].data = pack(codes, l.Bits), scale
		if l.HasOffset() {
			c.parts[2].data = pack(offset, l.Bits)
		}
		return err
	}
	return nil
}

// pack packs codes of bits bits, LSB first; higher bits are ignored.
func pack(codes []byte, bits int) []byte {
	if bits == 8 {
		return codes
	}
	out := make([]byte, (len(codes)*bits+7)/8)
	var acc, have uint
	at := 0
	for _, c := range codes {
		acc |= uint(c) & (1<<bits - 1) << have
		for have += uint(bits); have >= 8; have -= 8 {
			out[at] = byte(acc)
			acc >>= 8
			at++
		}
	}
	if have > 0 {
		out[at] = byte(acc)
	}
	return out
}
