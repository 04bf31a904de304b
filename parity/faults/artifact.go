package faults

import (
	"bytes"
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
			What: "gate_proj and up_proj of layer 1, of one shape, are swapped",
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
			files: flipByte,
		},
		{
			Name: "chunks-swapped", Family: Artifact, Gates: []string{"contract"},
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
			Name: "embedding-rows-shifted", Family: Artifact, Gates: anyLogits, Sites: []string{"embed"},
			What:    "the embedding table is shifted by one row",
			Applies: func(c *chunking.Contract) bool { return c.Embedding.Mode == chunking.EmbedSidecar },
			files:   shiftRows,
		},
		{
			Name: "other-config", Family: Artifact, Gates: []string{"contract"},
			What: "hf/config.json belongs to a variant with another head count",
			files: func(b *bundle) error {
				path := filepath.Join(b.dir, chunking.HFDir, "config.json")
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				was := fmt.Sprintf(`"num_attention_heads": %d`, b.contract.Model.Heads)
				if !strings.Contains(string(data), was) {
					return fmt.Errorf("faults: config.json has no %s", was)
				}
				is := fmt.Sprintf(`"num_attention_heads": %d`, 2*b.contract.Model.Heads)
				return os.WriteFile(path, []byte(strings.Replace(string(data), was, is, 1)), 0o644)
			},
		},
	}
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

// shiftRows rewrites the sidecar with the last row in front.
func shiftRows(b *bundle) error {
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
	row := len(data) / t.Shape()[0]
	data = append(slices.Clone(data[len(data)-row:]), data[:len(data)-row]...)
	shifted, err := checkpoint.NewRaw(t.Name(), t.DType(), t.Shape(), data)
	if err != nil {
		return err
	}
	return checkpoint.WriteFile(path, []checkpoint.Tensor{shifted}, nil)
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
