package mlx

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/quant"
)

// Directory is an opened MLX directory. As a [checkpoint.Source] it presents
// the weights of quantized modules decoded, in the type of their scales
// (bfloat16 for formats whose scales have no type), beside the other tensors.
type Directory struct {
	Dir     string
	Modules []Stored // the quantized ones, sorted by path

	config *object
	ck     *checkpoint.Checkpoint
	names  []string
	weight map[string]checkpoint.Tensor
}

// Float32 presents affine weights decoded in float32, scale·code + bias of the
// stored scales and biases, as quantized products compute them. Tensor, in
// contrast, gives what mx.dequantize gives, rounded to the type of the scales.
// The result is closed with d.
func (d *Directory) Float32() checkpoint.Source { return wideSource{d} }

type wideSource struct{ *Directory }

func (s wideSource) Tensor(name string) (checkpoint.Tensor, bool) {
	t, ok := s.Directory.Tensor(name)
	if x, isDecoded := t.(*decoded); isDecoded {
		switch x.codec.(type) {
		case quant.Affine, quant.Turbo:
			wide := *x
			wide.wide = true
			return wideTensor{&wide}, ok
		}
	}
	return t, ok
}

// Stored is a quantized module.
type Stored struct {
	Path  string
	Codec quant.Codec
	DType checkpoint.DType
	Shape []int // of the weight it stands for
	Bytes int64
}

// ErrNotQuantized says that a directory holds no quantized MLX model.
var ErrNotQuantized = errors.New("config.json has no quantization block (not a quantized MLX model)")

// Open opens dir and checks that the quantization block and the tensors agree.
func Open(dir string) (*Directory, error) {
	c, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	ck, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	d := &Directory{Dir: dir, config: c, ck: ck, weight: map[string]checkpoint.Tensor{}}
	if err := d.read(); err != nil {
		ck.Close()
		return nil, fmt.Errorf("mlx: %s: %w", dir, err)
	}
	return d, nil
}

// Close closes the files.
func (d *Directory) Close() error { return d.ck.Close() }

// Names returns the names of the tensors, decoded ones among them, sorted.
func (d *Directory) Names() []string { return d.names }

// Tensor returns a tensor by name.
func (d *Directory) Tensor(name string) (checkpoint.Tensor, bool) {
	if t, ok := d.weight[name]; ok {
		return t, true
	}
	if !slices.Contains(d.names, name) {
		return nil, false
	}
	return d.ck.Tensor(name)
}

// Config is config.json without the quantization blocks: that of the model
// that the decoded weights are.
func (d *Directory) Config() []byte {
	c := &object{keys: slices.Clone(d.config.keys), values: map[string]any{}}
	for k, v := range d.config.values {
		c.values[k] = v
	}
	c.remove("quantization")
	c.remove("quantization_config")
	return append(render(c), '\n')
}

func (d *Directory) read() error {
	block := d.config.child("quantization")
	if block == nil {
		return ErrNotQuantized
	}
	for _, name := range d.ck.Names() {
		stem, ok := strings.CutSuffix(name, ".scales")
		if !ok {
			continue
		}
		if err := d.module(stem, block); err != nil {
			return fmt.Errorf("module %s: %w", stem, err)
		}
	}
	for _, name := range d.ck.Names() {
		stem, suffix := name, ""
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			stem, suffix = name[:i], name[i+1:]
		}
		_, stored := d.weight[stem+".weight"]
		if stored && (suffix == "scales" || suffix == "biases") {
			continue
		}
		t, _ := d.ck.Tensor(name)
		if t.DType() == checkpoint.U32 && !stored {
			return fmt.Errorf("tensor %q holds codes without scales", name)
		}
		d.names = append(d.names, name)
	}
	for _, k := range block.keys {
		_, stored := d.weight[k+".weight"]
		switch v := block.values[k].(type) {
		case *object:
			if !stored {
				return fmt.Errorf("the quantization block names %s, which has no scales", k)
			}
		case bool:
			if stored && !v {
				return fmt.Errorf("the quantization block says false for %s, which has scales", k)
			}
		}
	}
	return nil
}

// module checks one quantized module and describes its decoded weight.
func (d *Directory) module(stem string, block *object) error {
	s := block
	if o := block.child(stem); o != nil {
		s = o
	}
	codec, err := parseSettings(s)
	if err != nil {
		return err
	}
	t := &decoded{name: stem + ".weight", codec: codec}
	var parts []checkpoint.Tensor
	for _, suffix := range []string{"weight", "scales", "biases"} {
		if p, ok := d.ck.Tensor(stem + "." + suffix); ok {
			parts = append(parts, p)
		}
	}
	scales, _ := d.ck.Tensor(stem + ".scales")
	group := 0
	switch c := codec.(type) {
	case quant.Affine:
		t.dtype, group = scales.DType(), c.Group
	case quant.Float:
		t.dtype, group = dtype(d.config), c.Group()
	case quant.Turbo:
		t.dtype, group = dtype(d.config), c.Group
	}
	if t.dtype == 0 {
		t.dtype = checkpoint.BF16
	}
	sh := scales.Shape()
	if len(sh) < 2 {
		return fmt.Errorf("scales are %v", sh)
	}
	t.shape = slices.Clone(sh)
	t.shape[len(sh)-1] *= group
	if group == 0 { // a scale a row: only the codes tell how long it is
		codes := parts[0].Shape()
		if len(codes) < 2 {
			return fmt.Errorf("codes are %v", codes)
		}
		t.shape[len(sh)-1] = codes[len(codes)-1] * 32 / codec.(quant.Turbo).Bits
	}
	want, err := codec.Parts(t.dtype, t.shape)
	if err != nil {
		return err
	}
	if len(want) != len(parts) {
		return fmt.Errorf("has %d tensors, %s has %d", len(parts), codec, len(want))
	}
	var size int64
	for i, p := range want {
		if parts[i].DType() != p.DType || !slices.Equal(parts[i].Shape(), p.Shape) {
			return fmt.Errorf("%s is %v %v, %s wants %v %v (are bits and group_size in config.json right?)", p.Suffix, parts[i].DType(), parts[i].Shape(), codec, p.DType, p.Shape)
		}
		size += p.Bytes()
	}
	t.parts = parts
	d.weight[t.name] = t
	d.Modules = append(d.Modules, Stored{stem, codec, t.dtype, t.shape, size})
	return nil
}

// parseSettings reads group_size, bits and mode.
func parseSettings(s *object) (quant.Codec, error) {
	mode := s.str("mode")
	if mode == "" {
		mode = "affine"
	}
	if mode != "affine" && mode != "turboquant" {
		return quant.NewFloat(mode)
	}
	bits, ok1 := s.integer("bits")
	group, ok2 := s.integer("group_size")
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("the quantization block lacks bits or group_size")
	}
	if mode == "turboquant" {
		return quant.NewTurbo(bits, group)
	}
	return quant.NewAffine(bits, group, quant.RoundCPU)
}

// decoded is the weight of a quantized module, decoded as it is read.
type decoded struct {
	name  string
	codec quant.Codec
	dtype checkpoint.DType
	shape []int
	parts []checkpoint.Tensor
	wide  bool // decode in float32
}

func (t *decoded) Name() string            { return t.name }
func (t *decoded) DType() checkpoint.DType { return t.dtype }
func (t *decoded) Shape() []int            { return t.shape }

// ReadFloat32 decodes the rows that hold the elements.
func (t *decoded) ReadFloat32(dst []float32, off int) error {
	cols := t.shape[len(t.shape)-1]
	total := checkpoint.NumElements(t)
	if off < 0 || off > total || len(dst) > total-off {
		return fmt.Errorf("mlx: tensor %q: read of elements [%d, %d) of %d", t.name, off, off+len(dst), total)
	}
	for len(dst) > 0 {
		row, at := off/cols, off%cols
		if at == 0 && len(dst) >= cols {
			n := min(len(dst)/cols, max(1, 1<<16/cols))
			if err := t.rows(dst[:n*cols], row, n); err != nil {
				return err
			}
			dst, off = dst[n*cols:], off+n*cols
			continue
		}
		one := make([]float32, cols)
		if err := t.rows(one, row, 1); err != nil {
			return err
		}
		n := copy(dst, one[at:])
		dst, off = dst[n:], off+n
	}
	return nil
}

// rows decodes n rows.
func (t *decoded) rows(dst []float32, first, n int) error {
	cols := t.shape[len(t.shape)-1]
	all := int64(checkpoint.NumElements(t) / cols)
	src := make([][]byte, len(t.parts))
	for i, p := range t.parts {
		each := checkpoint.NumBytes(p) / all
		src[i] = make([]byte, int(each)*n)
		if err := checkpoint.ReadRaw(p, src[i], each*int64(first)); err != nil {
			return err
		}
	}
	if a, ok := t.codec.(quant.Affine); ok && t.wide {
		a.DecodeFloat32(dst, src, t.dtype)
		return nil
	}
	if q, ok := t.codec.(quant.Turbo); ok && t.wide {
		q.DecodeFloat32(dst, src, cols)
		return nil
	}
	t.codec.Decode(dst, src, cols, t.dtype)
	return nil
}

// WriteTo writes the decoded elements; their type holds them exactly.
func (t *decoded) WriteTo(w io.Writer) (int64, error) {
	wide := checkpoint.Tensor(wideTensor{t})
	if t.dtype != checkpoint.F32 {
		wide = checkpoint.AsType(wide, t.dtype)
	}
	return wide.WriteTo(w)
}

// wideTensor presents decoded elements as float32, to be cast.
type wideTensor struct{ t *decoded }

func (x wideTensor) Name() string                             { return x.t.name }
func (x wideTensor) DType() checkpoint.DType                  { return checkpoint.F32 }
func (x wideTensor) Shape() []int                             { return x.t.shape }
func (x wideTensor) ReadFloat32(dst []float32, off int) error { return x.t.ReadFloat32(dst, off) }

func (x wideTensor) WriteTo(w io.Writer) (int64, error) {
	var n int64
	total := checkpoint.NumElements(x.t)
	buf := make([]float32, min(total, 1<<16))
	for off := 0; off < total; off += len(buf) {
		f := buf[:min(len(buf), total-off)]
		if err := x.ReadFloat32(f, off); err != nil {
			return n, err
		}
		m, err := checkpoint.NewFloat32("", []int{len(f)}, f).WriteTo(w)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
