package inspect

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
)

// Bundle describes a converted model.
type Bundle struct {
	Model         chunking.ModelInfo     `json:"model"`
	Compute       string                 `json:"compute"`
	Context       int                    `json:"context"`
	KV            string                 `json:"kv"`
	Embedding     string                 `json:"embedding"` // "sidecar" or "graph"
	ResidualScale float64                `json:"residual_scale"`
	Attention     map[models.Kind]Window `json:"attention"`
	Functions     []string               `json:"functions"`
	Head          []models.Role          `json:"head"` // what the last chunk yields, beside keys and values
	Chunks        []Chunk                `json:"chunks"`
	Tokenizer     *Tokenizer             `json:"tokenizer,omitempty"`
	Files         []File                 `json:"files"` // everything in the bundle
	Bytes         int64                  `json:"bytes"` // of all files
	SourceSHA256  string                 `json:"source_sha256,omitempty"`
}

// Window is the cache of one kind of attention.
type Window struct {
	Layers int    `json:"layers"`
	Slots  int    `json:"slots"`
	Layout string `json:"layout"`
	Window int    `json:"window"` // 0: all earlier positions
}

// Chunk is one package of a bundle and its range of layers.
type Chunk struct {
	Name  string `json:"name"`
	File  string `json:"file"`
	First int    `json:"first_layer"`
	Last  int    `json:"last_layer"` // exclusive
	*Package
}

// ReadBundle describes the bundle in dir.
func ReadBundle(dir string) (*Bundle, error) {
	c, err := chunking.ReadContract(dir)
	if err != nil {
		return nil, err
	}
	b := &Bundle{
		Model: c.Model, Compute: c.Compute, Context: c.Context, KV: c.KV, Embedding: c.Embedding.Mode,
		ResidualScale: c.ResidualScale, Attention: map[models.Kind]Window{}, SourceSHA256: c.Source.SHA256,
		Tokenizer: readTokenizer(filepath.Join(dir, chunking.HFDir)),
	}
	for k, a := range c.Attention {
		w := Window{Slots: a.Slots, Layout: a.Layout, Window: a.Window}
		for _, x := range c.Model.Kinds {
			if x == k {
				w.Layers++
			}
		}
		b.Attention[k] = w
	}
	for _, f := range c.Chunks[0].Functions {
		b.Functions = append(b.Functions, f.Name)
	}
	for _, p := range c.Chunks[len(c.Chunks)-1].Functions[0].Outputs {
		switch p.Role {
		case models.NewKeys, models.NewValues:
		default:
			b.Head = append(b.Head, p.Role)
		}
	}
	for _, ch := range c.Chunks {
		p, err := ReadPackage(filepath.Join(dir, ch.File))
		if err != nil {
			return nil, err
		}
		b.Chunks = append(b.Chunks, Chunk{Name: ch.Name, File: ch.File, First: ch.First, Last: ch.Last, Package: p})
	}
	return b, b.measure(dir)
}

// measure lists the files of the bundle.
func (b *Bundle) measure(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		b.Files = append(b.Files, File{filepath.ToSlash(rel), info.Size()})
		b.Bytes += info.Size()
		return nil
	})
	if err != nil {
		return fmt.Errorf("inspect: %s: %w", dir, err)
	}
	return nil
}

// Problem is the first reason for which a chunk's program is illegal.
func (b *Bundle) Problem() string {
	for _, c := range b.Chunks {
		if c.Package.Problem != "" {
			return c.Package.Problem
		}
	}
	return ""
}
