package parity

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/runtime"
)

// Logits feeds ids to the bundle in dir through one kind of function and
// writes the safetensors file out: logits f32 [T, vocab], or argmax i32 [T]
// where the bundle has only a token head, and input_ids i32 [T]. Rows go to a
// temporary file as they come, so memory does not grow with T. The file
// appears whole or not at all.
func Logits(ctx context.Context, dir string, ids []int32, via Via, mode runtime.Mode, out string) error {
	e, err := engine.Open(dir, engine.Options{Mode: mode})
	if err != nil {
		return err
	}
	defer e.Close()
	c := e.Contract()
	switch {
	case len(ids) == 0:
		return fmt.Errorf("parity: no ids")
	case largest(c, via) == 0:
		return fmt.Errorf("parity: the bundle has no %s function (convert with --functions)", via)
	case len(ids) > c.Context:
		return fmt.Errorf("parity: %d ids exceed the context of %d", len(ids), c.Context)
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), ".logits-*")
	if err != nil {
		return fmt.Errorf("parity: %w", err)
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	var argmax []int32
	buf := []byte{}
	err = feed(ctx, NewHost(e), c, via, ids, func(row engine.Row) error {
		if !hasLogits(c) {
			argmax = append(argmax, row.Token)
			return nil
		}
		buf = buf[:0]
		for _, v := range row.Logits {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
		_, err := tmp.Write(buf)
		return err
	})
	if err != nil {
		return err
	}
	tensors := []checkpoint.Tensor{checkpoint.NewInt32("input_ids", []int{len(ids)}, ids)}
	if hasLogits(c) {
		tensors = append(tensors, &spool{file: tmp, shape: []int{len(ids), c.Model.Vocab}})
	} else {
		tensors = append(tensors, checkpoint.NewInt32("argmax", []int{len(ids)}, argmax))
	}
	return checkpoint.WriteFile(out, tensors, nil)
}

// spool presents rows in a file as the tensor logits.
type spool struct {
	file  *os.File
	shape []int
}

func (s *spool) Name() string            { return "logits" }
func (s *spool) DType() checkpoint.DType { return checkpoint.F32 }
func (s *spool) Shape() []int            { return s.shape }

func (s *spool) WriteTo(w io.Writer) (int64, error) {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	return io.Copy(w, s.file)
}

func (s *spool) ReadFloat32(dst []float32, off int) error {
	buf := make([]byte, 4*len(dst))
	if _, err := s.file.ReadAt(buf, int64(4*off)); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(buf[4*i:]))
	}
	return nil
}
