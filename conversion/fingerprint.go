package conversion

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"math"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
)

// Keys of the metadata of a package that say which conversion it is of.
const (
	MetaChunk      = "smelt.chunk"
	MetaLayers     = "smelt.layers"
	MetaSource     = chunking.MetaSource
	MetaConversion = chunking.MetaConversion
)

// Samples that stand for a tensor in the hash of a source: tensors of no more
// elements than all of them together are read whole.
const (
	samples        = 16
	sampleElements = 512
)

// fingerprint hashes the configuration, however spelled, and the names, types, shapes and contents of
// all tensors used. Of a large tensor it reads 16 pieces, evenly spread: a
// checkpoint is told from any other that was trained or merged differently,
// not from one of which somebody changed single numbers.
func (s *Source) fingerprint(ctx context.Context) (string, error) {
	cfg := *s.Model.Config()
	cfg.ModelType, cfg.Defaulted = "", nil // spellings
	config, err := json.Marshal(cfg)
	if err != nil {
		return "", fmt.Errorf("conversion: %w", err)
	}
	h := sha256.New()
	text := func(v string) {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(v)))
		h.Write([]byte(v))
	}
	text(string(config))
	for _, u := range s.Model.Weights() {
		if u.Use != models.Used {
			continue
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		t, ok := s.view.Tensor(u.Name)
		if !ok {
			return "", fmt.Errorf("conversion: tensor %q is missing", u.Name)
		}
		text(u.Name)
		text(u.DType)
		text(fmt.Sprint(u.Shape))
		if err := sample(h, t); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// sample hashes pieces of t, or all of a small one.
func sample(h hash.Hash, t checkpoint.Tensor) error {
	defer checkpoint.Release(t)
	n := checkpoint.NumElements(t)
	count, each := samples, sampleElements
	if n <= samples*sampleElements {
		count, each = 1, n
	}
	values, raw := make([]float32, each), make([]byte, 4*each)
	for i := range count {
		off := 0
		if count > 1 {
			off = int(int64(n-each) * int64(i) / int64(count-1))
		}
		if err := t.ReadFloat32(values, off); err != nil {
			return fmt.Errorf("conversion: %w", err)
		}
		for j, v := range values {
			binary.LittleEndian.PutUint32(raw[4*j:], math.Float32bits(v))
		}
		h.Write(raw)
	}
	return nil
}

// identify fills in what the contract says of its source: which checkpoint, as
// its fingerprint tells, and which conversion of it.
func (s *Source) identify(c *chunking.Contract, fingerprint string) error {
	c.Source.SHA256, c.Source.Conversion = fingerprint, ""
	data, err := c.Marshal()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	c.Source.Conversion = hex.EncodeToString(sum[:])
	return nil
}

// Fingerprint is the hash that Convert notes as smelt.source: two checkpoints
// that give one are the same model.
func (s *Source) Fingerprint(ctx context.Context) (string, error) { return s.fingerprint(ctx) }
