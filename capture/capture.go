package capture

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/parity/reference"
)

// Schema names the format of capture.json, with its version.
const Schema = "smelt.capture/1"

// IndexFile is the file that says what a directory holds; it is written last.
const IndexFile = "capture.json"

// Norms of the final hidden state.
const (
	Pre  = "pre"  // before the final norm
	Post = "post" // after it
)

// Options say what is captured.
type Options struct {
	Taps  []int    // layers after which the residual stream is taken; −1: the embedding
	Norms []string // Pre, Post
	// Keys asks for keys and values of the last layer with its own, for these
	// kinds of layers: full, sliding.
	Keys  []string
	DType checkpoint.DType
	// Sequences is how many go into a shard, 0 for 64.
	Sequences int
	// Source identifies the checkpoint: its hash.
	Source string

	// Progress, if not nil, is told of sequences done.
	Progress func(stage string, done, total int64)
}

// Index is capture.json.
type Index struct {
	Schema string   `json:"schema"`
	Source string   `json:"source_sha256"`
	Kernel string   `json:"kernel"`
	Hidden int      `json:"hidden"`
	Vocab  int      `json:"vocab"`
	Layers int      `json:"layers"`
	Taps   []int    `json:"taps"`
	Norms  []string `json:"norms"`
	// Keys has the shape of the keys and values that were taken, by kind.
	Keys      map[string]drafter.Shape `json:"keys,omitempty"`
	DType     string                   `json:"dtype"`
	Sequences int                      `json:"sequences"`
	Tokens    int                      `json:"tokens"` // of a sequence
	Shards    []Shard                  `json:"shards"`
}

// Shard is a file of an Index.
type Shard struct {
	File      string `json:"file"`
	Sequences int    `json:"sequences"`
	SHA256    string `json:"sha256"`
}

// Run captures sequences of one length into the directory dir, which may hold the
// beginning of the same run.
func Run(ctx context.Context, d *decoder.Decoder, sequences [][]int32, dir string, o Options) (*Index, error) {
	if o.Sequences == 0 {
		o.Sequences = 64
	}
	if err := check(d, sequences, &o); err != nil {
		return nil, err
	}
	c := d.Config()
	layers := own(d)
	x := &Index{Schema: Schema, Source: o.Source, Kernel: kernel.Level(), Hidden: c.Hidden, Vocab: c.Vocab, Layers: c.Layers, Taps: o.Taps,
		Norms: o.Norms, DType: o.DType.String(), Sequences: len(sequences), Tokens: len(sequences[0])}
	for _, kind := range o.Keys {
		l, ok := layers[kind]
		if !ok {
			return nil, fmt.Errorf("capture: the model has no %s layers with keys of their own", kind)
		}
		if x.Keys == nil {
			x.Keys = map[string]drafter.Shape{}
		}
		x.Keys[kind] = drafter.Shape{Heads: c.Layer(l).KVHeads, HeadDim: c.Layer(l).HeadDim}
	}
	key, err := x.key(sequences, o.Sequences)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	for at := 0; at < len(sequences); at += o.Sequences {
		part := sequences[at:min(at+o.Sequences, len(sequences))]
		name := fmt.Sprintf("shard-%05d.safetensors", len(x.Shards))
		path := filepath.Join(dir, name)
		done, err := have(path, key)
		if err != nil {
			return nil, err
		}
		if !done {
			tensors, err := shard(ctx, d, part, o)
			if err != nil {
				return nil, err
			}
			if err := checkpoint.WriteFile(path, tensors, map[string]string{"capture": key}); err != nil {
				return nil, err
			}
		}
		sum, err := hash(path)
		if err != nil {
			return nil, err
		}
		x.Shards = append(x.Shards, Shard{name, len(part), sum})
		if o.Progress != nil {
			o.Progress("capturing", int64(at+len(part)), int64(len(sequences)))
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	if err := e.Encode(x); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	temporary := filepath.Join(dir, "."+IndexFile)
	if err := os.WriteFile(temporary, b.Bytes(), 0o644); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, IndexFile)); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return x, nil
}

func check(d *decoder.Decoder, sequences [][]int32, o *Options) error {
	if len(sequences) == 0 {
		return fmt.Errorf("capture: no sequences")
	}
	for i, s := range sequences {
		if len(s) != len(sequences[0]) {
			return fmt.Errorf("capture: sequence %d has %d tokens, the first has %d", i, len(s), len(sequences[0]))
		}
	}
	if len(o.Taps) == 0 && len(o.Norms) == 0 && len(o.Keys) == 0 {
		return fmt.Errorf("capture: nothing is to be captured (name taps or norms)")
	}
	for i, t := range o.Taps {
		if t < -1 || t >= d.Config().Layers {
			return fmt.Errorf("capture: there is no layer %d to tap: the model has %d, and -1 is the embedding", t, d.Config().Layers)
		}
		if slices.Contains(o.Taps[:i], t) {
			return fmt.Errorf("capture: layer %d is tapped twice", t)
		}
	}
	for i, k := range o.Keys {
		if slices.Contains(o.Keys[:i], k) {
			return fmt.Errorf("capture: keys of %s layers are asked for twice", k)
		}
	}
	for i, n := range o.Norms {
		if n != Pre && n != Post || slices.Contains(o.Norms[:i], n) {
			return fmt.Errorf("capture: norm %q (want pre, post or both, once)", n)
		}
	}
	switch o.DType {
	case checkpoint.BF16, checkpoint.F16, checkpoint.F32:
		return nil
	}
	return fmt.Errorf("capture: values cannot be %v (want BF16, F16 or F32)", o.DType)
}

// own finds the last layer of each kind that has keys and values of its own.
func own(d *decoder.Decoder) map[string]int {
	c := d.Config()
	out := map[string]int{}
	for i, k := range c.Kinds {
		if c.Layer(i).KVSource != i {
			continue
		}
		kind := "full"
		if k == reference.SlidingAttention {
			kind = "sliding"
		}
		out[kind] = i
	}
	return out
}

// key identifies a run.
func (x *Index) key(sequences [][]int32, perShard int) (string, error) {
	head, err := json.Marshal(x)
	if err != nil {
		return "", fmt.Errorf("capture: %w", err)
	}
	h := sha256.New()
	h.Write(head)
	_ = binary.Write(h, binary.LittleEndian, int64(perShard))
	for _, s := range sequences {
		_ = binary.Write(h, binary.LittleEndian, s)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// have reports whether path is a shard of this run. Files appear whole, so that
// one that is there is complete.
func have(path, key string) (bool, error) {
	f, err := checkpoint.OpenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if f.Metadata()["capture"] != key {
		return false, fmt.Errorf("capture: %s is of another run: another checkpoint, text or list of taps (choose another directory)", path)
	}
	return true, nil
}

// shard runs the model over some sequences.
func shard(ctx context.Context, d *decoder.Decoder, sequences [][]int32, o Options) ([]checkpoint.Tensor, error) {
	shape := []int{len(sequences), len(sequences[0])}
	out := []checkpoint.Tensor{checkpoint.NewInt32("tokens", shape, slices.Concat(sequences...))}
	take := func(name string, m decoder.Matrix) {
		out = append(out, checkpoint.AsType(checkpoint.NewFloat32(name, append(slices.Clone(shape), m.Cols), m.Data), o.DType))
	}
	s, err := d.Embed(ctx, sequences, nil)
	if err != nil {
		return nil, err
	}
	layers := own(d)
	for _, kind := range o.Keys {
		s.KeepKV = append(s.KeepKV, layers[kind])
	}
	for layer := -1; ; layer++ {
		if slices.Contains(o.Taps, layer) {
			take(fmt.Sprintf("tap.%d", layer), s.Hidden.Clone())
		}
		if s.Layer == d.Config().Layers {
			break
		}
		if err := d.Layer(ctx, s, decoder.Options{}); err != nil {
			return nil, err
		}
	}
	for _, kind := range o.Keys {
		k, v, ok := s.KV(layers[kind])
		if !ok {
			return nil, fmt.Errorf("capture: layer %d left no keys", layers[kind])
		}
		take("keys."+kind, k)
		take("values."+kind, v)
	}
	if slices.Contains(o.Norms, Pre) {
		take("hidden.pre", s.Hidden)
	}
	if slices.Contains(o.Norms, Post) {
		x, err := d.Norm(s)
		if err != nil {
			return nil, err
		}
		take("hidden.post", x)
	}
	return out, nil
}

func hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("capture: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("capture: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
