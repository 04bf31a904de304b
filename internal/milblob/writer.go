package milblob

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Output is where a Writer writes: an empty *os.File opened for reading and
// writing. Its methods are called concurrently.
type Output interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
}

// Source is a blob's content. WriteTo writes exactly Elements elements of DType,
// packed and little-endian.
type Source interface {
	io.WriterTo
	DType() DType
	Elements() int64
}

// RangeSource is a Source that may be able to give any part of its bytes. Such
// a source is written by several goroutines, after Add has returned.
type RangeSource interface {
	Source
	// Ranges returns a function that fills dst with bytes from offset off on.
	// It must bear concurrent calls. Offsets and lengths are multiples of 64,
	// or lengths reach to the end.
	Ranges() (ReadRange, bool)
}

// ReadRange fills dst with the bytes of a source from offset off on.
type ReadRange = func(dst []byte, off int64) error

// Options are hooks of a Writer; all may be nil. They are called concurrently.
type Options struct {
	// Check is called before each piece of a blob; its error ends the writing.
	Check func() error
	// Wrote is told how many bytes of data have been written, or found to be
	// there already.
	Wrote func(n int64)
}

// Writer appends blobs to a file, each distinct content once. The bytes depend
// only on the sequence of Add calls.
type Writer struct {
	out   Output
	opts  Options
	team  team
	end   int64 // where the last blob's data end
	count uint32
	byKey map[any]uint64
	alike map[sketch][]uint64 // offsets of blobs that a sketch cannot tell apart
	saved int64
	err   error
}

// NewWriter starts a file. Nothing is valid until Finish, and Close must follow
// in any case.
func NewWriter(out Output, opts Options) *Writer {
	return &Writer{out: out, opts: opts, end: alignment, byKey: map[any]uint64{}, alike: map[sketch][]uint64{}}
}

// Add appends a blob and returns the offset of its metadata. If an equal blob
// was added before, its offset is returned and nothing written. key, when not
// nil, must be comparable and must name the content: a second Add with an equal
// key returns the first offset without asking src for bytes. After an error the
// writer is unusable. The failure of a RangeSource may only show in a later call.
func (w *Writer) Add(key any, src Source) (uint64, error) {
	if w.err != nil {
		return 0, w.err
	}
	if key != nil {
		if at, ok := w.byKey[key]; ok {
			w.saved += src.DType().Size(src.Elements())
			return at, nil
		}
	}
	at, err := w.add(src)
	if err != nil || w.team.failed() {
		w.err = w.team.wait() // an earlier blob's failure comes first
	}
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("milblob: write %s[%d]: %w", src.DType(), src.Elements(), err)
	}
	if w.err != nil {
		return 0, w.err
	}
	if key != nil {
		w.byKey[key] = at
	}
	return at, nil
}

// blob is a place in the file and what belongs there.
type blob struct {
	dtype    DType
	elements int64
	size     int64
	start    int64 // of the padding before it
	at       int64 // of its metadata
}

func (b *blob) data() int64 { return b.at + alignment }

// head is the padding and the metadata.
func (b *blob) head() []byte {
	h := make([]byte, b.data()-b.start)
	m := h[b.at-b.start:]
	bits := int64(b.dtype.Bits())
	binary.LittleEndian.PutUint32(m[0:], sentinel)
	binary.LittleEndian.PutUint32(m[4:], uint32(b.dtype))
	binary.LittleEndian.PutUint64(m[8:], uint64(b.size))
	binary.LittleEndian.PutUint64(m[16:], uint64(b.data()))
	binary.LittleEndian.PutUint64(m[24:], uint64((8-b.elements%8*bits%8)%8))
	return h
}

func (w *Writer) add(src Source) (uint64, error) {
	dt, n := src.DType(), src.Elements()
	if dt.Bits() == 0 || n < 0 {
		return 0, fmt.Errorf("not a storable type or count")
	}
	b := &blob{dtype: dt, elements: n, size: dt.Size(n), start: w.end, at: (w.end + alignment - 1) / alignment * alignment}
	var read ReadRange
	ranged := false
	if r, ok := src.(RangeSource); ok {
		read, ranged = r.Ranges()
	}
	if !ranged {
		if err := w.stream(b, src); err != nil {
			return 0, err
		}
		read = func(dst []byte, off int64) error { return w.readBack(dst, b.data()+off) }
	}
	sk, err := sketchOf(b, read)
	if err == nil {
		old, found, err := w.find(sk, b, read)
		if err != nil {
			return 0, err
		}
		if found {
			w.saved += b.size
			if ranged {
				w.wrote(b.size)
			}
			return old, nil
		}
		w.alike[sk] = append(w.alike[sk], uint64(b.at))
	} else if !ranged {
		return 0, err
	} // else the pieces will fail, the first bad one first
	if ranged {
		w.team.write(w, b, read)
	}
	w.end = b.data() + b.size
	w.count++
	return uint64(b.at), nil
}

// find looks for a blob with the contents of b among those with its sketch.
func (w *Writer) find(sk sketch, b *blob, read ReadRange) (uint64, bool, error) {
	if len(w.alike[sk]) == 0 {
		return 0, false, nil
	}
	if err := w.team.wait(); err != nil {
		return 0, false, err
	}
	for _, at := range w.alike[sk] {
		old := func(dst []byte, off int64) error { return w.readBack(dst, int64(at)+alignment+off) }
		same, err := equal(old, read, b.size)
		if err != nil || same {
			return at, same, err
		}
	}
	return 0, false, nil
}

// readBack reads what the file holds.
func (w *Writer) readBack(dst []byte, at int64) error {
	n, err := w.out.ReadAt(dst, at)
	if n == len(dst) {
		return nil
	}
	return err
}

func (w *Writer) check() error {
	if w.opts.Check == nil {
		return nil
	}
	return w.opts.Check()
}

func (w *Writer) wrote(n int64) {
	if w.opts.Wrote != nil && n > 0 {
		w.opts.Wrote(n)
	}
}

// Finish waits for what is being written, writes the header and cuts off what a
// blob that turned out to be shared left behind. It does not close or sync the
// output.
func (w *Writer) Finish() error {
	if w.err == nil {
		w.err = w.team.wait()
	}
	if w.err != nil {
		return w.err
	}
	w.err = fmt.Errorf("milblob: write after Finish")
	var h [alignment]byte
	binary.LittleEndian.PutUint32(h[0:], w.count)
	binary.LittleEndian.PutUint32(h[4:], version)
	if _, err := w.out.WriteAt(h[:], 0); err != nil {
		return fmt.Errorf("milblob: finish: %w", err)
	}
	if err := w.out.Truncate(w.end); err != nil {
		return fmt.Errorf("milblob: finish: %w", err)
	}
	return nil
}

// Close ends the writer's goroutines; the output is not used afterwards. What
// was not written before Finish is lost. It may be called again.
func (w *Writer) Close() { w.team.close() }

// Count is the number of distinct blobs so far.
func (w *Writer) Count() int { return int(w.count) }

// Size is the file's length so far, in bytes.
func (w *Writer) Size() int64 { return w.end }

// Saved is the number of data bytes that sharing equal blobs avoided.
func (w *Writer) Saved() int64 { return w.saved }

// Bytes is a Source over packed data in memory.
type Bytes struct {
	Type DType
	N    int64
	Data []byte
}

func (b Bytes) DType() DType    { return b.Type }
func (b Bytes) Elements() int64 { return b.N }

// Ranges copies from the data, if they have the size that they should have.
func (b Bytes) Ranges() (ReadRange, bool) {
	return func(dst []byte, off int64) error {
		copy(dst, b.Data[off:])
		return nil
	}, int64(len(b.Data)) == b.Type.Size(b.N)
}

// WriteTo writes the data in one call.
func (b Bytes) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b.Data)
	return int64(n), err
}
