package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

// artifactFaults are damaged or mixed-up files.
func artifactFaults() []Fault {
	return []Fault{
		{
			Name: "blobs-swapped", Family: Artifact, Gates: anyLogits, Sites: []string{"mlp_gate"},
			What: "gate_proj and up_proj of layer 1, of one shape, are swapped", Cause: "two weights of one shape are swapped",
			files: func(b *bundle) error {
				return b.inLayer(1, func(f *function) error {
					g, err := f.op(name(1, "gate"))
					if err != nil {
						return err
					}
					u, err := f.op(name(1, "up"))
					if err != nil {
						return err
					}
					gw, uw := g.In("weight"), u.In("weight")
					gw.Const, uw.Const = uw.Const, gw.Const
					return nil
				})
			},
		},
		{
			Name: "byte-flipped", Family: Artifact, Gates: append(slices.Clone(anyLogits), "finite"), Sites: []string{"attn_out"},
			What:  "one byte of o_proj of layer 1 is damaged in the weight file",
			Cause: "a square matrix is stored transposed, or its weight is damaged",
			files: flipByte,
		},
		{
			Name: "chunks-swapped", Family: Artifact, Gates: []string{"contract"}, Says: "holds layer", Form: formMany,
			What:    "two chunks of one interface are swapped on disk",
			Applies: func(c *chunking.Contract) bool { _, _, ok := twins(c); return ok },
			files: func(b *bundle) error {
				i, j, _ := twins(b.contract)
				tmp := filepath.Join(b.dir, "swap")
				for _, m := range [][2]string{{b.path(i), tmp}, {b.path(j), b.path(i)}, {tmp, b.path(j)}} {
					if err := os.Rename(m[0], m[1]); err != nil {
						return err
					}
				}
				return nil
			},
		},
		{
			Name: "embedding-rows-shifted", Family: Artifact, Gates: tied, Sites: []string{"embed", "logits"},
			What:    "the embedding table is shifted by one row",
			Applies: sidecar, Cause: "the embedding table is another one than the head's",
			files: func(b *bundle) error {
				return b.sidecar(func(row int, data []byte) []byte {
					return append(slices.Clone(data[len(data)-row:]), data[:len(data)-row]...)
				})
			},
		},
		{
			Name: "table-of-another-checkpoint", Family: Artifact, Gates: tied, Sites: []string{"embed", "logits"},
			What:    "embeddings come from another fine-tune than the chunks",
			Applies: sidecar, Cause: "the embedding table is another one than the head's",
			files: func(b *bundle) error {
				return b.sidecar(func(_ int, data []byte) []byte {
					for i := 1; i < len(data); i += 2 { // high bytes of bf16
						data[i] ^= byte(i>>1) & 1
					}
					return data
				})
			},
		},
		{
			Name: "other-config", Family: Artifact, Gates: []string{"contract"}, Says: "num_attention_heads",
			What: "hf/config.json belongs to a variant with another head count",
			files: func(b *bundle) error {
				return b.editJSON(filepath.Join(b.dir, chunking.HFDir, "config.json"), func(c map[string]any) { c["num_attention_heads"] = 2 * b.contract.Model.Heads })
			},
		},
		{
			Name: "stamp-missing", Family: Artifact, Gates: []string{"source"}, Says: "metadata",
			What:  "a chunk does not say which checkpoint it comes from",
			files: func(b *bundle) error { return b.metadata(b.last(), map[string]string{chunking.MetaSource: ""}) },
		},
		{
			Name: "foreign-chunk", Family: Artifact, Gates: []string{"contract"}, Says: "another checkpoint",
			What: "a chunk comes from another fine-tune of the model",
			files: func(b *bundle) error {
				return b.metadata(b.last(), map[string]string{chunking.MetaSource: strings.Repeat("5a", 32)})
			},
		},
		{
			Name: "other-checkpoint", Family: Artifact, Gates: []string{"source"}, Says: "converted from a checkpoint with hash",
			What: "the bundle was converted from another fine-tune than the checkpoint it is held against",
			files: func(b *bundle) error {
				dir, err := b.tuned()
				b.checkpoint = dir
				return err
			},
		},
		{
			Name: "stale-recording", Family: Artifact, Gates: []string{"recording"}, Sites: []string{"logits"},
			What: "the recording is of an earlier version of the checkpoint",
			files: func(b *bundle) error {
				path := b.dir + ".golden.safetensors"
				b.golden = path
				return b.rewrite(b.source.Golden, path, "logits", func(x []float32) {
					for i := range x {
						x[i] += 0.2 * float32(i%7-3)
					}
				})
			},
		},
		{
			Name: "bos-dropped", Family: Artifact, Gates: []string{"tokenizer"}, Says: "in front", when: tokenizes,
			What: "the bundle's tokenizer does not put BOS in front",
			files: func(b *bundle) error {
				return b.editJSON(filepath.Join(b.dir, chunking.HFDir, "tokenizer.json"), func(c map[string]any) { c["post_processor"] = nil })
			},
		},
		{
			Name: "wrong-tokenizer", Family: Artifact, Gates: []string{"tokenizer"}, Says: "the first difference", when: tokenizes,
			What: "the bundle has the tokenizer of another model with as many tokens",
			files: func(b *bundle) error {
				return b.editJSON(filepath.Join(b.dir, chunking.HFDir, "tokenizer.json"), func(c map[string]any) {
					if m, ok := sub(c, "model"); ok {
						if merges, ok := m["merges"].([]any); ok { // other merges, the same vocabulary
							m["merges"] = merges[:len(merges)/2]
						}
					}
				})
			},
		},
		{
			Name: "tokenizer-missing", Family: Artifact, Gates: []string{"tokenizer"}, Says: "has none", when: tokenizes,
			What:  "the bundle has no tokenizer although the checkpoint has one",
			files: func(b *bundle) error { return os.Remove(filepath.Join(b.dir, chunking.HFDir, "tokenizer.json")) },
		},
	}
}

// tokenizes reports whether the bundle has a tokenizer.
func tokenizes(b *bundle) bool {
	_, err := os.Stat(filepath.Join(b.dir, chunking.HFDir, "tokenizer.json"))
	return err == nil
}

// flipByte flips the highest exponent bit of one element of o_proj of layer 1.
func flipByte(b *bundle) error {
	for i, ch := range b.contract.Chunks {
		if 1 < ch.First || 1 >= ch.Last {
			continue
		}
		p, err := mlpackage.Read(b.path(i), mlpackage.ReadOptions{})
		if err != nil {
			return err
		}
		f := &function{p.Program.Functions[p.Program.Names()[0]]}
		o, err := f.op(name(1, "attn_out"))
		var data []byte
		var width int
		if err == nil {
			w := o.In("weight").Const
			width = w.Type().DType.Bits() / 8
			data, err = mil.ConstBytes(w)
			data = bytes.Clone(data)
		}
		p.Close()
		if err != nil {
			return err
		}
		path := filepath.Join(b.path(i), "Data", "com.apple.CoreML", "weights", "weight.bin")
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at := bytes.Index(file, data)
		if at < 0 {
			return fmt.Errorf("faults: %s does not hold the bytes of o_proj", path)
		}
		file[at+len(data)/2/width*width+width-1] ^= 0x40
		return os.WriteFile(path, file, 0o644)
	}
	return fmt.Errorf("faults: no chunk holds layer 1")
}

// sidecar rewrites the embedding table. row is the length of a row in bytes.
func (b *bundle) sidecar(change func(row int, data []byte) []byte) error {
	path := filepath.Join(b.dir, b.contract.Embedding.File)
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	t, ok := f.Tensor(b.contract.Embedding.Tensor)
	if !ok {
		return fmt.Errorf("faults: %s has no tensor %q", path, b.contract.Embedding.Tensor)
	}
	data, err := checkpoint.ReadBytes(t)
	if err != nil {
		return err
	}
	changed, err := checkpoint.NewRaw(t.Name(), t.DType(), t.Shape(), change(len(data)/t.Shape()[0], slices.Clone(data)))
	if err != nil {
		return err
	}
	return checkpoint.WriteFile(path, []checkpoint.Tensor{changed}, nil)
}

// rewrite copies a safetensors file, one tensor of it changed.
func (b *bundle) rewrite(from, to, tensor string, change func([]float32)) error {
	f, err := checkpoint.OpenFile(from)
	if err != nil {
		return err
	}
	defer f.Close()
	var out []checkpoint.Tensor
	for _, n := range f.Names() {
		t, _ := f.Tensor(n)
		if n == tensor {
			x, err := checkpoint.ReadAll(t)
			if err != nil {
				return err
			}
			change(x)
			t = checkpoint.NewFloat32(n, t.Shape(), x)
		}
		out = append(out, t)
	}
	return checkpoint.WriteFile(to, out, nil)
}

// editJSON changes a JSON object on disk.
func (b *bundle) editJSON(path string, change func(map[string]any)) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c map[string]any
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("faults: %s: %w", path, err)
	}
	change(c)
	if data, err = json.Marshal(c); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// twins finds two chunks whose functions take and return the same.
func twins(c *chunking.Contract) (int, int, bool) {
	shape := func(ch chunking.Chunk) string {
		var s strings.Builder
		for _, f := range ch.Functions {
			for _, ports := range [][]chunking.Port{f.Inputs, f.Outputs, f.States} {
				for _, p := range ports {
					fmt.Fprint(&s, p.Name, p.DType, p.Shape, ";")
				}
			}
		}
		return s.String()
	}
	for i := range c.Chunks {
		for j := i + 1; j < len(c.Chunks); j++ {
			if shape(c.Chunks[i]) == shape(c.Chunks[j]) {
				return i, j, true
			}
		}
	}
	return 0, 0, false
}
