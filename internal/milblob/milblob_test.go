package milblob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// memory is an Output in memory.
type memory struct {
	mu   sync.Mutex
	data []byte
}

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if need := at + int64(len(p)); need > int64(len(m.data)) {
		m.data = append(m.data, make([]byte, need-int64(len(m.data)))...)
	}
	return copy(m.data[at:], p), nil
}

func (m *memory) ReadAt(p []byte, at int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.NewReader(m.data).ReadAt(p, at)
}

func (m *memory) Truncate(n int64) error { m.data = m.data[:n]; return nil }

// streamed is a Source that gives its bytes in order only.
type streamed struct{ b Bytes }

func (s streamed) DType() DType    { return s.b.Type }
func (s streamed) Elements() int64 { return s.b.N }

// WriteTo writes in small pieces.
func (s streamed) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(struct{ io.Writer }{w}, iotest.HalfReader(bytes.NewReader(s.b.Data)))
}

func encode(t interface {
	Fatal(...any)
	Helper()
}, blobs ...Bytes) ([]byte, []uint64) {
	t.Helper()
	out := &memory{}
	w := NewWriter(out, Options{})
	defer w.Close()
	var offsets []uint64
	for i, b := range blobs {
		var src Source = b
		if i%3 == 1 {
			src = streamed{b}
		}
		at, err := w.Add(nil, src)
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, at)
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return out.data, offsets
}

func write(t *testing.T, blobs ...Bytes) *File {
	t.Helper()
	data, _ := encode(t, blobs...)
	f, err := Parse("test", data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLayout(t *testing.T) {
	data, offsets := encode(t,
		Bytes{Float16, 2, []byte{1, 2, 3, 4}},
		Bytes{UInt3, 5, Pack([]byte{1, 2, 3, 4, 5}, 3)},
		Bytes{Float32, 0, nil},
		Bytes{Int8, 65, bytes.Repeat([]byte{7}, 65)})
	if diff := cmp.Diff([]uint64{64, 192, 320, 384}, offsets); diff != "" {
		t.Error(diff)
	}
	want := make([]byte, 384+64+65)
	put := func(at int, v ...uint32) {
		for i, x := range v {
			binary.LittleEndian.PutUint32(want[at+4*i:], x)
		}
	}
	put(0, 4, 2)
	put(64, 0xDEADBEEF, 1, 4, 0, 128, 0, 0)
	copy(want[128:], []byte{1, 2, 3, 4})
	put(192, 0xDEADBEEF, 12, 2, 0, 256, 0, 1)
	copy(want[256:], []byte{0xd1, 0x58})
	put(320, 0xDEADBEEF, 2, 0, 0, 384, 0, 0)
	put(384, 0xDEADBEEF, 4, 65, 0, 448, 0, 0)
	copy(want[448:], bytes.Repeat([]byte{7}, 65))
	if diff := cmp.Diff(want, data); diff != "" {
		t.Error(diff)
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var blobs []Bytes
		for range rapid.IntRange(0, 6).Draw(t, "blobs") {
			dt := DType(rapid.IntRange(1, 17).Draw(t, "dtype"))
			n := int64(rapid.IntRange(0, 40).Draw(t, "n"))
			size := int(dt.Size(n))
			blobs = append(blobs, Bytes{dt, n, rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "data")})
		}
		data, offsets := encode(t, blobs...)
		f, err := Parse("test", data)
		if err != nil {
			t.Fatal(err)
		}
		distinct := map[uint64]bool{}
		for i, b := range blobs {
			distinct[offsets[i]] = true
			r, got, err := f.Blob(offsets[i])
			if err != nil {
				t.Fatal(err)
			}
			if r.DType != b.Type || r.Elements() != b.N || !bytes.Equal(got, b.Data) {
				t.Fatalf("blob %d: %+v %x, want %+v", i, r, got, b)
			}
		}
		if len(distinct) != len(f.Records()) {
			t.Fatalf("%d records for %d distinct offsets", len(f.Records()), len(distinct))
		}
	})
}

func TestSharing(t *testing.T) {
	a := Bytes{UInt8, 3, []byte{1, 2, 3}}
	long := Bytes{UInt8, 200, bytes.Repeat([]byte{9}, 200)}
	data, offsets := encode(t, long, a, long, a,
		Bytes{Int8, 3, []byte{1, 2, 3}},  // same bytes, other type
		Bytes{UInt3, 7, []byte{1, 2, 3}}, // same bytes, other count
		Bytes{UInt3, 8, []byte{1, 2, 3}},
		long)
	if offsets[0] != offsets[2] || offsets[0] != offsets[7] || offsets[1] != offsets[3] {
		t.Errorf("equal blobs at different offsets: %v", offsets)
	}
	f, err := Parse("test", data)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(f.Records()); got != 5 {
		t.Errorf("%d blobs stored, want 5", got)
	}
}

// failing is a Source that must not be asked for its bytes.
type failing struct{ Bytes }

var errAsked = errors.New("bytes were asked for")

func (failing) WriteTo(io.Writer) (int64, error) { return 0, errAsked }
func (failing) Ranges() (ReadRange, bool)        { return func([]byte, int64) error { return errAsked }, true }

func TestKey(t *testing.T) {
	type key struct{ name string }
	w := NewWriter(&memory{}, Options{})
	defer w.Close()
	b := Bytes{UInt8, 2, []byte{1, 2}}
	first, err := w.Add(key{"a"}, b)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.Add(key{"a"}, failing{b}); err != nil || again != first {
		t.Errorf("second Add with the key: offset %d, %v; want %d", again, err, first)
	}
	if w.Saved() != 2 {
		t.Errorf("saved %d bytes, want 2", w.Saved())
	}
	_, _ = w.Add(key{"b"}, failing{b}) // the failure may show later
	if err := w.Finish(); !errors.Is(err, errAsked) {
		t.Errorf("another key took the first one's blob: %v", err)
	}
	if _, err := w.Add(nil, b); !errors.Is(err, errAsked) {
		t.Errorf("a failed writer went on: %v", err)
	}
}

func TestSourceLies(t *testing.T) {
	for _, b := range []Bytes{
		{Float16, 2, []byte{1, 2, 3}}, {Float16, 2, []byte{1, 2, 3, 4, 5}}, {DType(0), 1, []byte{1}}, {DType(99), 1, []byte{1}}, {UInt8, -1, nil},
	} {
		w := NewWriter(&memory{}, Options{})
		defer w.Close()
		if _, err := w.Add(nil, b); err == nil {
			t.Errorf("%v was written", b)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	good, _ := encode(t, Bytes{Float16, 4, make([]byte, 8)}, Bytes{UInt3, 5, Pack([]byte{1, 2, 3, 4, 5}, 3)})
	u32 := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint32(b[at:], v); return b }
	}
	u64 := func(at int, v uint64) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint64(b[at:], v); return b }
	}
	for _, c := range []struct {
		name string
		edit func([]byte) []byte
		want string
	}{
		{"empty", func([]byte) []byte { return nil }, "too few for a header"},
		{"version", u32(4, 1), "storage version 1"},
		{"count too large", u32(0, 3), "blob 2 of 3: metadata at 320 runs past the end"},
		{"count absurd", u32(0, 1<<31), "header counts 2147483648 blobs"},
		{"count too small", u32(0, 1), "the file has 258 bytes"},
		{"sentinel", u32(64, 0xDEADBEE0), "no metadata at 64"},
		{"dtype", u32(68, 18), "unknown dtype code 18"},
		{"size", u64(72, 1<<20), "run past the end"},
		{"size overflow", u64(72, 1<<63), "run past the end"},
		{"odd size", u64(72, 7), "no whole number of fp16"},
		{"data before metadata", u64(80, 0), "overlaps"},
		{"data unaligned", u64(80, 130), "no multiple of 64"},
		{"data past end", u64(80, 1<<40), "run past the end"},
		{"padding", u64(88, 8), "8 padding bits"},
		{"padding wrong", u64(192+24, 2), "no whole number of uint3"},
		{"truncated", func(b []byte) []byte { return b[:len(b)-1] }, "run past the end"},
		{"trailing", func(b []byte) []byte { return append(b, 0) }, "the file has 259 bytes"},
	} {
		_, err := Parse("w.bin", c.edit(bytes.Clone(good)))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "milblob: w.bin: ") {
			t.Errorf("%s: %v, want …%s…", c.name, err, c.want)
		}
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weight.bin")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(out, Options{})
	defer w.Close()
	at, err := w.Add(nil, Bytes{UInt8, 3, []byte{4, 5, 6}})
	if err != nil {
		t.Fatal(err)
	}
	// Longer than what follows: Finish has to cut the rest off.
	if _, err := w.Add(nil, Bytes{UInt8, 3, []byte{4, 5, 6}}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Finish(), out.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, b, err := f.Blob(at); err != nil || !bytes.Equal(b, []byte{4, 5, 6}) {
		t.Errorf("blob %v, %v", b, err)
	}
	for _, wrong := range []uint64{0, 65, 128, 1 << 40} {
		if _, _, err := f.Blob(wrong); err == nil {
			t.Errorf("offset %d gave a blob", wrong)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a directory was opened")
	}
	if err := os.WriteFile(path, []byte("short"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "too few") {
		t.Errorf("short file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	good, _ := encode(f, Bytes{Float16, 4, make([]byte, 8)}, Bytes{UInt3, 5, Pack([]byte{1, 2, 3, 4, 5}, 3)}, Bytes{Int32, 0, nil})
	f.Add(good)
	f.Add(good[:100])
	empty, _ := encode(f)
	f.Add(empty)
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		var blobs []Bytes
		last := uint64(0)
		for _, r := range file.Records() {
			_, b, err := file.Blob(r.Offset)
			if err != nil {
				t.Fatal(err)
			}
			if r.Offset < last || int64(len(b)) != r.DType.Size(r.Elements()) {
				t.Fatalf("record %+v after %d with %d bytes", r, last, len(b))
			}
			last = r.Data + r.Size
			blobs = append(blobs, Bytes{r.DType, r.Elements(), b})
		}
		again, offsets := encode(t, blobs...)
		copied, err := Parse("again", again)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range blobs {
			if _, got, err := copied.Blob(offsets[i]); err != nil || !bytes.Equal(got, b.Data) {
				t.Fatalf("blob %d changed: %v", i, err)
			}
		}
	})
}
