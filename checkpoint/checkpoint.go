package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// Checkpoint is the set of tensors of one file or of all the shards of a model.
type Checkpoint struct {
	files   []*File
	tensors map[string]Tensor
	names   []string
}

// Open opens a checkpoint: a directory with model.safetensors or with
// model.safetensors.index.json and its shards, a single .safetensors file, or
// an index file. All headers are read and checked; the index must name exactly
// the tensors its shards hold.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	switch {
	case info.IsDir():
		return openDir(path)
	case strings.HasSuffix(path, ".safetensors.index.json"):
		return openIndexed(path)
	}
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	return newCheckpoint([]*File{f}), nil
}

func openDir(dir string) (*Checkpoint, error) {
	single, indexed := filepath.Join(dir, singleName), filepath.Join(dir, indexName)
	hasSingle, err := exists(single)
	if err != nil {
		return nil, err
	}
	hasIndex, err := exists(indexed)
	if err != nil {
		return nil, err
	}
	switch {
	case hasSingle && hasIndex:
		// Some writers add an index to a single file; an index of other
		// shards beside it leaves open which one is the model.
		x, err := readIndex(indexed)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %s: %w", indexName, err)
		}
		if !slices.Equal(x.shards(), []string{singleName}) {
			return nil, fmt.Errorf("checkpoint: %s: holds %s and an index of other files %v (remove one, or name the one to open)", dir, singleName, x.shards())
		}
		return openIndexed(indexed)
	case hasIndex:
		return openIndexed(indexed)
	case hasSingle:
		f, err := OpenFile(single)
		if err != nil {
			return nil, err
		}
		return newCheckpoint([]*File{f}), nil
	}
	return nil, missingError(dir)
}

// missingError says what a directory without a checkpoint holds instead.
func missingError(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err == nil && len(found) > 0 {
		names := make([]string, len(found))
		for i, f := range found {
			names[i] = filepath.Base(f)
		}
		return fmt.Errorf("checkpoint: %s: neither %s nor %s is there, but %v (add the index, or name one file)", dir, singleName, indexName, names)
	}
	for _, pattern := range []string{"*.bin", "*.pth", "*.pt", "*.gguf", "*.npz"} {
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err == nil && len(found) > 0 {
			return fmt.Errorf("checkpoint: %s: no safetensors file is there, but %s (convert it to safetensors first)", dir, filepath.Base(found[0]))
		}
	}
	return fmt.Errorf("checkpoint: %s: neither %s nor %s is there", dir, singleName, indexName)
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("checkpoint: %w", err)
}

func openIndexed(path string) (*Checkpoint, error) {
	base := filepath.Base(path)
	x, err := readIndex(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", base, err)
	}
	var files []*File
	fail := func(err error) (*Checkpoint, error) {
		for _, f := range files {
			f.Close()
		}
		return nil, err
	}
	for _, shard := range x.shards() {
		f, err := OpenFile(filepath.Join(filepath.Dir(path), shard))
		if errors.Is(err, fs.ErrNotExist) {
			return fail(fmt.Errorf("checkpoint: %s: shard is missing, but %s lists it (incomplete download?)", shard, base))
		}
		if err != nil {
			return fail(err)
		}
		files = append(files, f)
	}
	if err := x.check(files); err != nil {
		return fail(fmt.Errorf("checkpoint: %w (see %s)", err, base))
	}
	return newCheckpoint(files), nil
}

// newCheckpoint joins files that hold no name twice.
func newCheckpoint(files []*File) *Checkpoint {
	c := &Checkpoint{files: files, tensors: make(map[string]Tensor)}
	for _, f := range files {
		for name, t := range f.tensors {
			c.tensors[name] = t
		}
	}
	c.names = slices.Sorted(maps.Keys(c.tensors))
	return c
}

// Names returns the tensor names, sorted.
func (c *Checkpoint) Names() []string { return slices.Clone(c.names) }

// Tensor returns the tensor called name.
func (c *Checkpoint) Tensor(name string) (Tensor, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// Metadata returns the free-form strings of all the files' headers. Where
// shards disagree on a key, the first shard's value stands.
func (c *Checkpoint) Metadata() map[string]string {
	m := make(map[string]string)
	for _, f := range slices.Backward(c.files) {
		maps.Copy(m, f.metadata)
	}
	return m
}

// Files returns the paths of the files, sorted.
func (c *Checkpoint) Files() []string {
	paths := make([]string, len(c.files))
	for i, f := range c.files {
		paths[i] = f.path
	}
	return paths
}

// Close closes all the files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
