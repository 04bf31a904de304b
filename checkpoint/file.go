package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// File is one open .safetensors file.
type File struct {
	path     string
	base     string // in error texts
	metadata map[string]string
	tensors  map[string]*fileTensor
	names    []string

	mu      sync.RWMutex // held for reading while f or mapped is in use
	f       *os.File
	size    int64
	mapOnce sync.Once
	mapped  []byte // nil until Raw is first asked for, or where mapping fails
}

// OpenFile opens a .safetensors file and checks its header against its size.
func OpenFile(path string) (*File, error) {
	base := filepath.Base(path)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	file, err := newFile(path, base, f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("checkpoint: %s: %w", base, err)
	}
	return file, nil
}

func newFile(path, base string, f *os.File) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	h, err := readHeader(f, info.Size())
	if err != nil {
		return nil, err
	}
	file := &File{
		path: path, base: base, f: f, size: info.Size(),
		metadata: h.metadata,
		tensors:  make(map[string]*fileTensor, len(h.entries)),
	}
	for _, e := range h.entries {
		file.tensors[e.name] = &fileTensor{file: file, entry: e, start: h.dataStart + e.begin}
	}
	file.names = slices.Sorted(maps.Keys(file.tensors))
	return file, nil
}

// Path returns the path the file was opened with.
func (f *File) Path() string { return f.path }

// Names returns the tensor names, sorted.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Tensor returns the tensor called name.
func (f *File) Tensor(name string) (Tensor, bool) {
	t, ok := f.tensors[name]
	if !ok {
		return nil, false
	}
	return t, true
}

// Metadata returns the header's free-form strings; the map may be nil.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Close releases the file and its mapping. Bytes from [Raw] must not be used
// any more; later reads return an error.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	if f.mapped != nil {
		err = errors.Join(err, unmap(f.mapped))
	}
	f.f, f.mapped = nil, nil
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", f.base, err)
	}
	return nil
}

// fileTensor is a tensor of a file; start is its first byte's offset in it.
type fileTensor struct {
	file *File
	entry
	start int64
}

func (t *fileTensor) Name() string { return t.name }
func (t *fileTensor) DType() DType { return t.dtype }
func (t *fileTensor) Shape() []int { return t.shape }
func (t *fileTensor) bytes() int64 { return t.end - t.begin }

func (t *fileTensor) readRaw(dst []byte, off int64) error {
	t.file.mu.RLock()
	defer t.file.mu.RUnlock()
	if t.file.f == nil {
		return fmt.Errorf("checkpoint: %s: tensor %q: file is closed", t.file.base, t.name)
	}
	if err := readFull(t.file.f, dst, t.start+off); err != nil {
		return fmt.Errorf("checkpoint: %s: tensor %q: %w", t.file.base, t.name, err)
	}
	return nil
}

func (t *fileTensor) WriteTo(w io.Writer) (int64, error) { return writeRaw(w, t, t.bytes()) }

func (t *fileTensor) ReadFloat32(dst []float32, off int) error { return readFloat32(t, t, dst, off) }

func (t *fileTensor) raw() ([]byte, bool) {
	f := t.file
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.f == nil {
		return nil, false
	}
	f.mapOnce.Do(func() {
		if m, err := mapFile(f.f, f.size); err == nil {
			f.mapped = m
		}
	})
	if f.mapped == nil {
		return nil, false
	}
	end := t.start + t.bytes()
	return f.mapped[t.start:end:end], true
}

func (t *fileTensor) release() {
	t.file.mu.RLock()
	defer t.file.mu.RUnlock()
	if m := t.file.mapped; m != nil {
		// Only whole pages inside the tensor: its neighbours may be in use.
		page := int64(os.Getpagesize())
		from := (t.start + page - 1) / page * page
		to := (t.start + t.bytes()) / page * page
		if from < to {
			dropPages(m[from:to])
		}
	}
}
