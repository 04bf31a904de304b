package milblob

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
)

// Output is where a Writer writes: an *os.File opened for writing, at its start.
type Output interface {
	io.WriteSeeker
	Truncate(size int64) error
}

// Source is a blob's content. WriteTo writes exactly Elements elements of DType,
// packed and little-endian.
type Source interface {
	io.WriterTo
	DType() DType
	Elements() int64
}

// Writer appends blobs to a file, each distinct content once. The bytes depend
// only on the sequence of Add calls.
type Writer struct {
	out   Output
	buf   *bufio.Writer
	end   int64 // where the last blob's data end
	count uint32
	byKey map[any]uint64
	bySum map[content]uint64
	saved int64
	err   error
}

// content identifies a blob exactly.
type content struct {
	dtype    DType
	elements int64
	sum      [sha256.Size]byte
}

// NewWriter starts an empty file. Nothing is valid until Finish.
func NewWriter(out Output) *Writer {
	w := &Writer{
		out: out, buf: bufio.NewWriterSize(out, 1<<20),
		byKey: map[any]uint64{}, bySum: map[content]uint64{},
	}
	w.zero(alignment)
	w.end = alignment
	return w
}

// Add streams a blob to the end of the file and returns the offset of its
// metadata. If an equal blob was written before, the new one is taken back and
// the old offset returned. key, when not nil, must be comparable and must name
// the content: a second Add with an equal key returns the first offset without
// asking src for bytes. After an error the writer is unusable.
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
	if err != nil {
		w.err = fmt.Errorf("milblob: write %s[%d]: %w", src.DType(), src.Elements(), err)
		return 0, w.err
	}
	if key != nil {
		w.byKey[key] = at
	}
	return at, nil
}

func (w *Writer) add(src Source) (uint64, error) {
	dt, n := src.DType(), src.Elements()
	bits := int64(dt.Bits())
	if bits == 0 || n < 0 {
		return 0, fmt.Errorf("not a storable type or count")
	}
	size := dt.Size(n)
	at := (w.end + alignment - 1) / alignment * alignment
	w.zero(int(at - w.end))
	var m [alignment]byte
	binary.LittleEndian.PutUint32(m[0:], sentinel)
	binary.LittleEndian.PutUint32(m[4:], uint32(dt))
	binary.LittleEndian.PutUint64(m[8:], uint64(size))
	binary.LittleEndian.PutUint64(m[16:], uint64(at+alignment))
	binary.LittleEndian.PutUint64(m[24:], uint64((8-n%8*bits%8)%8))
	if _, err := w.buf.Write(m[:]); err != nil {
		return 0, err
	}
	sink := &sink{w: w.buf, sum: sha256.New(), left: size}
	if _, err := src.WriteTo(sink); err != nil {
		return 0, err
	}
	if sink.left != 0 {
		return 0, fmt.Errorf("source wrote %d of %d bytes", size-sink.left, size)
	}
	id := content{dtype: dt, elements: n, sum: [sha256.Size]byte(sink.sum.Sum(nil))}
	if old, ok := w.bySum[id]; ok {
		w.saved += size
		return old, w.rewind(w.end)
	}
	w.bySum[id] = uint64(at)
	w.end = at + alignment + size
	w.count++
	return uint64(at), nil
}

// rewind makes the next byte land at an offset already passed.
func (w *Writer) rewind(at int64) error {
	if err := w.buf.Flush(); err != nil {
		return err
	}
	_, err := w.out.Seek(at, io.SeekStart)
	return err
}

func (w *Writer) zero(n int) {
	var zeros [alignment]byte
	// A failure sticks to the buffer and surfaces in the next Write or Flush.
	_, _ = w.buf.Write(zeros[:n])
}

// Finish writes the header and cuts off what a rolled-back blob left behind. It
// does not close or sync the output.
func (w *Writer) Finish() error {
	if w.err != nil {
		return w.err
	}
	w.err = fmt.Errorf("milblob: write after Finish")
	var h [8]byte
	binary.LittleEndian.PutUint32(h[0:], w.count)
	binary.LittleEndian.PutUint32(h[4:], version)
	if err := w.rewind(0); err != nil {
		return fmt.Errorf("milblob: finish: %w", err)
	}
	if _, err := w.out.Write(h[:]); err != nil {
		return fmt.Errorf("milblob: finish: %w", err)
	}
	if err := w.out.Truncate(w.end); err != nil {
		return fmt.Errorf("milblob: finish: %w", err)
	}
	return nil
}

// Count is the number of distinct blobs so far.
func (w *Writer) Count() int { return int(w.count) }

// Size is the file's length so far, in bytes.
func (w *Writer) Size() int64 { return w.end }

// Saved is the number of data bytes that sharing equal blobs avoided.
func (w *Writer) Saved() int64 { return w.saved }

// sink hashes and counts what a source writes and stops it at the agreed size.
type sink struct {
	w    io.Writer
	sum  hash.Hash
	left int64
}

func (s *sink) Write(p []byte) (int, error) {
	if int64(len(p)) > s.left {
		return 0, fmt.Errorf("source writes more bytes than its type and count say")
	}
	n, err := s.w.Write(p)
	s.sum.Write(p[:n])
	s.left -= int64(n)
	return n, err
}

// Bytes is a Source over packed data in memory.
type Bytes struct {
	Type DType
	N    int64
	Data []byte
}

func (b Bytes) DType() DType    { return b.Type }
func (b Bytes) Elements() int64 { return b.N }

// WriteTo writes the data in one call.
func (b Bytes) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b.Data)
	return int64(n), err
}
