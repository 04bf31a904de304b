package checkpoint

import (
	"hash/fnv"
	"io"
	"maps"
	"slices"
)

// Blanks is a Source of BF16 tensors of given shapes, by name, whose contents
// stand for nothing: it takes the place of a checkpoint where only names and
// shapes matter. Elements are 1 or 0.5, different from name to name.
type Blanks map[string][]int

// Names returns all the tensor names, sorted.
func (b Blanks) Names() []string { return slices.Sorted(maps.Keys(b)) }

// Tensor returns the tensor called name.
func (b Blanks) Tensor(name string) (Tensor, bool) {
	shape, ok := b[name]
	if !ok {
		return nil, false
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	return &blank{name, shape, h.Sum64()}, true
}

// blank spells the hash of its name over and over, a bit an element.
type blank struct {
	name  string
	shape []int
	hash  uint64
}

func (b *blank) Name() string   { return b.name }
func (b *blank) DType() DType   { return BF16 }
func (b *blank) Shape() []int   { return b.shape }
func (b *blank) one(i int) bool { return b.hash>>(i%64)&1 == 1 }

func (b *blank) ReadFloat32(dst []float32, off int) error {
	if n := NumElements(b); off < 0 || off > n || len(dst) > n-off {
		return tensorErrorf(b.name, "read of elements [%d, %d) of %d", off, off+len(dst), n)
	}
	for i := range dst {
		dst[i] = 0.5
		if b.one(off + i) {
			dst[i] = 1
		}
	}
	return nil
}

// readRaw writes the upper halves of the float32 bits.
func (b *blank) readRaw(dst []byte, off int64) error {
	for i := range dst {
		at := off + int64(i)
		switch {
		case at%2 == 1:
			dst[i] = 0x3f
		case b.one(int(at / 2)):
			dst[i] = 0x80
		default:
			dst[i] = 0
		}
	}
	return nil
}

func (b *blank) WriteTo(w io.Writer) (int64, error) {
	buf := make([]byte, 1<<14) // whole runs of the hash: one filling serves all
	_ = b.readRaw(buf, 0)
	total := int64(0)
	for n := NumBytes(b); total < n; {
		k, err := w.Write(buf[:min(int64(len(buf)), n-total)])
		if total += int64(k); err != nil {
			return total, err
		}
	}
	return total, nil
}
