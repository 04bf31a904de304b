package mlpackage

import (
	"fmt"
	"io"
	"strings"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/internal/milblob"
	"github.com/smelt-go/smelt/mil"
)

// modelPathPrefix is how a program refers to the directory of its weight files.
const modelPathPrefix = "@model_path/weights/"

// blobConst is a constant whose bytes stay in a weight file. It implements
// mil.RawConst without a copy.
type blobConst struct {
	t    mil.TensorType
	data []byte
}

func (c *blobConst) Type() mil.TensorType { return c.t }
func (c *blobConst) Raw() []byte          { return c.data }

// WriteTo writes the packed elements as the file holds them.
func (c *blobConst) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(c.data)
	return int64(n), err
}

// weights finds blobs by name and offset. Values that refer to one blob with one
// type share a constant, so identity tells that contents are equal.
type weights struct {
	open   func(name string) (*milblob.File, error)
	files  map[string]*milblob.File
	consts map[string]*blobConst
}

func newWeights(open func(name string) (*milblob.File, error)) *weights {
	return &weights{open: open, files: map[string]*milblob.File{}, consts: map[string]*blobConst{}}
}

func (w *weights) read(t mil.TensorType, v *coremlproto.Value_BlobFileValue) (mil.Const, error) {
	if t.NumElements() == mil.Unknown {
		return nil, fmt.Errorf("constant of unknown shape %v", t)
	}
	key := fmt.Sprintf("%d %v %s", v.GetOffset(), t, v.GetFileName())
	if c, ok := w.consts[key]; ok {
		return c, nil
	}
	name, ok := strings.CutPrefix(v.GetFileName(), modelPathPrefix)
	if !ok || name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return nil, fmt.Errorf("weight file %q is not directly below %s", v.GetFileName(), modelPathPrefix)
	}
	file, ok := w.files[name]
	if !ok {
		var err error
		if file, err = w.open(name); err != nil {
			return nil, err
		}
		w.files[name] = file
	}
	record, data, err := file.Blob(v.GetOffset())
	if err != nil {
		return nil, err
	}
	if want := forms[t.DType].blob; record.DType != want {
		return nil, fmt.Errorf("blob at %d of %s holds %v, the program wants %v", v.GetOffset(), name, record.DType, t)
	}
	if record.Elements() != int64(t.NumElements()) {
		return nil, fmt.Errorf("blob at %d of %s holds %d elements, the program wants %v", v.GetOffset(), name, record.Elements(), t)
	}
	c := &blobConst{t, data}
	w.consts[key] = c
	return c, nil
}

// value decodes an inline value: a tensor, or a list of scalars, which becomes a
// rank-1 constant.
func (w *weights) value(v *coremlproto.Value) (mil.Type, mil.Const, error) {
	if v == nil {
		return nil, nil, fmt.Errorf("value is missing")
	}
	if err := known(v, "value"); err != nil {
		return nil, nil, err
	}
	t, err := readType(v.GetType())
	if err != nil {
		return nil, nil, err
	}
	switch t := t.(type) {
	case mil.TensorType:
		if b := v.GetBlobFileValue(); b != nil {
			c, err := w.read(t, b)
			return t, c, err
		}
		if v.GetImmediateValue().GetTensor() == nil {
			return nil, nil, fmt.Errorf("%v value holds no tensor", t)
		}
		c, err := readImmediate(t, v.GetImmediateValue().GetTensor())
		return t, c, err
	case mil.ListType:
		c, err := w.list(t, v.GetImmediateValue().GetList())
		return t, c, err
	}
	return nil, nil, fmt.Errorf("constant of type %v is not supported", t)
}

func (w *weights) list(t mil.ListType, l *coremlproto.ListValue) (mil.Const, error) {
	elem, ok := t.Elem.(mil.TensorType)
	if !ok || elem.Rank() != 0 {
		return nil, fmt.Errorf("constant of type %v: only lists of scalars are supported", t)
	}
	if t.Length != mil.Unknown && t.Length != len(l.GetValues()) {
		return nil, fmt.Errorf("%v holds %d values", t, len(l.GetValues()))
	}
	out := &mil.Literal{T: mil.T(elem.DType, len(l.GetValues()))}
	for i, e := range l.GetValues() {
		et, c, err := w.value(e)
		if err != nil {
			return nil, fmt.Errorf("list element %d: %w", i, err)
		}
		item, ok := c.(*mil.Literal)
		if tt, isTensor := et.(mil.TensorType); !ok || !isTensor || !tt.Equal(elem) || elem.DType.Bits()%8 != 0 {
			return nil, fmt.Errorf("list element %d is %v, want %v", i, et, elem)
		}
		out.Data = append(out.Data, item.Data...)
		out.Strs = append(out.Strs, item.Strs...)
	}
	return out, nil
}
