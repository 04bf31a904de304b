package parity

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/parity/reference"
)

// decodedSource is a checkpoint in which compressed weights and tables are
// what the bundle decodes them to. The reference decoder on it is the judge of
// everything but the codes themselves, of which gate codes is.
type decodedSource struct {
	checkpoint.Source
	weights map[string]*decodedWeight
	extra   []string // names that the checkpoint does not have
}

// Names lists all tensors.
func (d *decodedSource) Names() []string { return append(d.Source.Names(), d.extra...) }

// Tensor returns the decoded weight where there is one.
func (d *decodedSource) Tensor(name string) (checkpoint.Tensor, bool) {
	if w, ok := d.weights[name]; ok {
		return w, true
	}
	return d.Source.Tensor(name)
}

// decodedWeight is a compressed weight of the bundle as a tensor of the
// checkpoint.
type decodedWeight struct {
	checkpoint.Tensor // as stored in the checkpoint
	name              string
	where             string // chunk or file, and what it is called there
	site              string
	chunk, function   string
	palette           bool // of single values
	sparse            bool // zeros are weights left out
	bits              int
	read              func(dst []float32, off int) error
	factor            float32 // undoes the scale of the residual stream
}

func (w *decodedWeight) Name() string            { return w.name }
func (w *decodedWeight) DType() checkpoint.DType { return checkpoint.F32 }

func (w *decodedWeight) ReadFloat32(dst []float32, off int) error {
	if err := w.read(dst, off); err != nil {
		return err
	}
	for i := range dst {
		dst[i] *= w.factor
	}
	return nil
}

// headTensor and tableTensor are one where a model ties them.
const (
	headTensor  = "lm_head.weight"
	tableTensor = "model.embed_tokens.weight"
)

// decoded opens the checkpoint with the bundle's compressed weights in it. The
// result is nil if there are none.
func (s *Subject) decoded(original checkpoint.Source) (*decodedSource, error) {
	d := &decodedSource{Source: original, weights: map[string]*decodedWeight{}}
	take := d.taker()
	err := s.weights(func(w stored) error {
		x, err := take(w, s.Contract.Chunks[w.chunk].Name)
		if err == nil && x != nil {
			x.factor, err = s.factor(x.Tensor, x)
		}
		return err
	})
	if err == nil {
		err = s.int8Tables(d)
	}
	if err != nil || len(d.weights) == 0 {
		return nil, err
	}
	return d, nil
}

// taker returns a function that takes a compressed weight in, the first of every
// tensor. It returns nil for what is not compressed or has been taken.
func (d *decodedSource) taker() func(w stored, chunk string) (*decodedWeight, error) {
	byName := map[string]string{}
	for _, n := range d.Source.Names() {
		byName[tensorName(n)] = n
	}
	return func(w stored, chunk string) (*decodedWeight, error) {
		tensor, ok := byName[w.op.Name]
		if !isConstexpr(w.op) || !ok || d.weights[tensor] != nil {
			return nil, nil
		}
		t, _ := d.Source.Tensor(tensor)
		rows, err := decoder(w.value)
		if err != nil {
			return nil, fmt.Errorf("parity: %s: %w", chunk, err)
		}
		if rows.Len() != checkpoint.NumElements(t) {
			return nil, fmt.Errorf("parity: %s: %s decodes to %v, the checkpoint's tensor has shape %v", chunk, w.op.Name, rows.Type, t.Shape())
		}
		x := &decodedWeight{Tensor: t, name: tensor, site: w.op.Name, chunk: chunk, function: w.function, bits: codeBits(w.op), factor: 1,
			palette: singleValues(w.op), sparse: strings.Contains(w.op.Kind, "sparse"), where: chunk + ": " + w.op.Name,
			read: func(dst []float32, off int) error { rows.Elements(dst, off); return nil }}
		d.weights[tensor] = x
		return x, nil
	}
}

// int8Tables takes the tables that the host looks rows up in as it reads them.
func (s *Subject) int8Tables(d *decodedSource) error {
	c := s.Contract
	for _, t := range []struct {
		codes, scales, tensor string
		width                 int
	}{{c.Embedding.File, c.Embedding.Scales, tableTensor, c.Model.Hidden}, s.perLayerTable()} {
		if t.scales == "" {
			continue
		}
		stored, ok := d.Source.Tensor(t.tensor)
		if !ok {
			continue
		}
		var files []*os.File
		for _, name := range []string{t.codes, t.scales} {
			f, err := os.Open(filepath.Join(s.Dir, name))
			if err != nil {
				return fmt.Errorf("parity: %w", err)
			}
			s.closers = append(s.closers, f.Close)
			files = append(files, f)
		}
		w := &decodedWeight{Tensor: stored, name: t.tensor, where: t.codes, site: t.codes, bits: 8, factor: 1, read: int8Rows(files[0], files[1], t.width)}
		if head := d.weights[t.tensor]; head != nil { // the compressed head of a tied model
			d.untie(head, tableTensor)
		} else if t.tensor == tableTensor && s.Original.Config().TiedHead {
			d.untie(&decodedWeight{Tensor: stored, name: headTensor, read: stored.ReadFloat32, factor: 1}, tableTensor)
		}
		d.weights[t.tensor] = w
	}
	return nil
}

// perLayerTable says where the host reads the per-layer table.
func (s *Subject) perLayerTable() (t struct {
	codes, scales, tensor string
	width                 int
}) {
	if p := s.Contract.PerLayer; p != nil {
		t.codes, t.scales, t.tensor, t.width = p.File, p.Scales, "model.embed_tokens_per_layer.weight", s.Contract.Model.Layers*p.Dim
	}
	return t
}

// untie makes w the head of a model that shares it with the table otherwise.
func (d *decodedSource) untie(w *decodedWeight, table string) {
	head := *w
	head.name = headTensor
	d.weights[headTensor] = &head
	delete(d.weights, table)
	if _, ok := d.Source.Tensor(headTensor); !ok {
		d.extra = []string{headTensor}
	}
}

// int8Rows reads a table whose element is int8·scale/127, with an fp16 scale a
// row.
func int8Rows(codes, scales io.ReaderAt, width int) func(dst []float32, off int) error {
	return func(dst []float32, off int) error {
		raw := make([]byte, len(dst))
		if _, err := codes.ReadAt(raw, int64(off)); err != nil {
			return fmt.Errorf("parity: int8 rows: %w", err)
		}
		row, step := -1, float32(0)
		for i := range dst {
			if r := (off + i) / width; r != row {
				var b [2]byte
				if _, err := scales.ReadAt(b[:], 2*int64(r)); err != nil {
					return fmt.Errorf("parity: int8 scales: %w", err)
				}
				row, step = r, half.ToF32(binary.LittleEndian.Uint16(b[:]))
			}
			dst[i] = float32(int8(raw[i])) * step / 127
		}
		return nil
	}
}

// factor is the power of two that undoes what the residual stream's scale did
// to a weight: of 1, 1/scale and scale the one that brings it nearest to what
// was stored.
func (s *Subject) factor(t checkpoint.Tensor, w *decodedWeight) (float32, error) {
	scale := float32(s.Contract.ResidualScale)
	if scale == 1 {
		return 1, nil
	}
	n := min(checkpoint.NumElements(t), 1<<14)
	a, b := make([]float32, n), make([]float32, n)
	if err := w.read(a, 0); err != nil {
		return 1, err
	}
	if err := t.ReadFloat32(b, 0); err != nil {
		return 1, err
	}
	best, factor := -1.0, float32(1)
	for _, f := range []float32{1, 1 / scale, scale} {
		var sum float64
		for i := range a {
			d := float64(a[i]*f) - float64(b[i])
			sum += d * d
		}
		if best < 0 || sum < best {
			best, factor = sum, f
		}
	}
	return factor, nil
}

// openReference opens the checkpoint for the reference decoder: with decoded
// weights where the bundle has compressed ones. Original is the checkpoint as
// it is.
func (s *Subject) openReference(dir string) error {
	original, err := reference.Open(dir)
	if err != nil {
		return err
	}
	s.Original, s.Reference = original, original
	ckpt, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, ckpt.Close)
	s.source = ckpt.Text()
	d, err := s.decoded(s.source)
	if missing(err) || err != nil && s.unreadable() {
		return nil // the contract gate says so
	}
	if err != nil || d == nil {
		return err
	}
	s.codes = d
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return fmt.Errorf("parity: %w", err)
	}
	// A compressed head is no longer the table that the host looks rows up in.
	if w := d.weights[tableTensor]; w != nil && w.function != "" && original.Config().TiedHead && s.Contract.Embedding.File != "" {
		d.untie(w, tableTensor)
	}
	if original.Config().TiedHead && d.weights[headTensor] != nil {
		if config, err = untied(config); err != nil {
			return err
		}
	}
	m, err := reference.New(d, config)
	if err != nil {
		return err
	}
	s.Reference = m
	return nil
}

// unreadable reports whether a package cannot be read at all.
func (s *Subject) unreadable() bool {
	_, err := s.packages()
	return err != nil
}

// untied is a config.json whose head is a tensor of its own.
func untied(config []byte) ([]byte, error) {
	var root map[string]json.RawMessage
	if err := json.Unmarshal(config, &root); err != nil {
		return nil, fmt.Errorf("parity: config.json: %w", err)
	}
	root["tie_word_embeddings"] = json.RawMessage("false")
	if text, ok := root["text_config"]; ok {
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(text, &inner); err != nil {
			return nil, fmt.Errorf("parity: config.json: text_config: %w", err)
		}
		inner["tie_word_embeddings"] = json.RawMessage("false")
		data, err := json.Marshal(inner)
		if err != nil {
			return nil, err
		}
		root["text_config"] = data
	}
	return json.Marshal(root)
}

// singleValues reports whether a weight is a palette of which an index stands
// for one element.
func singleValues(o *mil.Op) bool {
	lut := o.In("lut")
	if !strings.Contains(o.Kind, "lut") || lut == nil {
		return false
	}
	t, ok := lut.Tensor()
	return ok && (t.Rank() == 1 || t.Shape[t.Rank()-1] == 1)
}

// codeBits is the width of a compressed weight's codes, 0 if unknown.
func codeBits(o *mil.Op) int {
	if v := o.In("lut"); v != nil {
		// A code of a vector palette stands for several weights.
		if t, ok := v.Tensor(); ok && t.Rank() > 1 && t.Shape[t.Rank()-1] > 1 {
			n := int(t.Shape[t.Rank()-1])
			return (indexBits(o) + n - 1) / n
		}
	}
	return indexBits(o)
}

// indexBits is the width of the stored integers.
func indexBits(o *mil.Op) int {
	for _, p := range []string{"indices", "data", "quantized_data", "nonzero_data"} {
		if v := o.In(p); v != nil {
			if v.Op != nil && isConstexpr(v.Op) {
				return codeBits(v.Op)
			}
			if t, ok := v.Tensor(); ok && t.DType.IsInt() {
				return t.DType.Bits()
			}
		}
	}
	return 0
}
