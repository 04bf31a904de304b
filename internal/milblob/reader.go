package milblob

import (
	"encoding/binary"
	"fmt"
	"os"
	"sort"

	"golang.org/x/sys/unix"
)

const (
	sentinel  = 0xDEADBEEF
	version   = 2
	alignment = 64
)

// Record describes one blob of a file.
type Record struct {
	Offset  uint64 // of the metadata: what a model refers to
	DType   DType
	Data    uint64 // absolute offset of the first data byte
	Size    uint64 // in bytes
	Padding uint64 // unused bits at the end of the last byte, 0 to 7
}

// Elements is the number of elements that the blob holds.
func (r Record) Elements() int64 {
	return (int64(r.Size)*8 - int64(r.Padding)) / int64(r.DType.Bits())
}

// File is an open blob file. Its methods may be called concurrently; Close must
// come after the last use of any slice taken from it.
type File struct {
	name    string
	data    []byte
	mapped  bool
	records []Record
}

// Open maps a file into memory and checks every record. Errors carry the path.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("milblob: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("milblob: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("milblob: %s: not a regular file", path)
	}
	if info.Size() < alignment {
		return Parse(path, make([]byte, info.Size()))
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("milblob: %s: map %d bytes: %w", path, info.Size(), err)
	}
	file, err := Parse(path, data)
	if err != nil {
		_ = unix.Munmap(data)
		return nil, err
	}
	file.mapped = true
	return file, nil
}

// Parse checks a file that is already in memory. name is used in errors; data
// must not change afterwards.
func Parse(name string, data []byte) (*File, error) {
	f := &File{name: name, data: data}
	size := uint64(len(data))
	if size < alignment {
		return nil, f.errorf("%d bytes are too few for a header of %d (truncated?)", size, alignment)
	}
	count := binary.LittleEndian.Uint32(data)
	if v := binary.LittleEndian.Uint32(data[4:]); v != version {
		return nil, f.errorf("storage version %d, only %d is supported", v, version)
	}
	if most := size / alignment; uint64(count) > most {
		return nil, f.errorf("header counts %d blobs, %d bytes can hold no more than %d (truncated?)", count, size, most)
	}
	at, end := uint64(alignment), uint64(alignment)
	for i := range count {
		r, err := f.record(at)
		if err != nil {
			return nil, f.errorf("blob %d of %d: %w", i, count, err)
		}
		f.records = append(f.records, r)
		end = r.Data + r.Size
		at = (end + alignment - 1) / alignment * alignment
	}
	if end != size {
		return nil, f.errorf("the last of %d blobs ends at %d, the file has %d bytes (wrong count in the header?)", count, end, size)
	}
	return f, nil
}

// record decodes and checks the metadata at an offset.
func (f *File) record(at uint64) (Record, error) {
	size := uint64(len(f.data))
	if at%alignment != 0 {
		return Record{}, fmt.Errorf("metadata offset %d is no multiple of %d", at, alignment)
	}
	if at >= size || size-at < alignment {
		return Record{}, fmt.Errorf("metadata at %d runs past the end of the file (%d bytes, truncated?)", at, size)
	}
	m := f.data[at:]
	if s := binary.LittleEndian.Uint32(m); s != sentinel {
		return Record{}, fmt.Errorf("no metadata at %d: sentinel is 0x%08x, expected 0x%08x", at, s, uint32(sentinel))
	}
	r := Record{
		Offset:  at,
		DType:   DType(binary.LittleEndian.Uint32(m[4:])),
		Size:    binary.LittleEndian.Uint64(m[8:]),
		Data:    binary.LittleEndian.Uint64(m[16:]),
		Padding: binary.LittleEndian.Uint64(m[24:]),
	}
	bits := uint64(r.DType.Bits())
	switch {
	case bits == 0:
		return r, fmt.Errorf("metadata at %d: unknown dtype code %d", at, uint32(r.DType))
	case r.Data%alignment != 0:
		return r, fmt.Errorf("metadata at %d: data offset %d is no multiple of %d", at, r.Data, alignment)
	case r.Data < at+alignment:
		return r, fmt.Errorf("metadata at %d: data offset %d overlaps the metadata or an earlier blob", at, r.Data)
	case r.Data > size || r.Size > size-r.Data:
		return r, fmt.Errorf("metadata at %d: %d bytes at %d run past the end of the file (%d bytes, truncated?)", at, r.Size, r.Data, size)
	case r.Padding >= 8 || r.Padding > r.Size*8:
		return r, fmt.Errorf("metadata at %d: %d padding bits in %d bytes, at most 7 are legal", at, r.Padding, r.Size)
	case (r.Size*8-r.Padding)%bits != 0:
		return r, fmt.Errorf("metadata at %d: %d bytes less %d bits hold no whole number of %s elements", at, r.Size, r.Padding, r.DType)
	}
	return r, nil
}

// Name is the path or name the file was opened with.
func (f *File) Name() string { return f.name }

// Records lists the blobs in file order. The caller must not change the slice.
func (f *File) Records() []Record { return f.records }

// Blob finds the blob whose metadata is at an offset and returns its packed
// little-endian data without copying. The slice is read-only, and valid until Close.
func (f *File) Blob(offset uint64) (Record, []byte, error) {
	i := sort.Search(len(f.records), func(i int) bool { return f.records[i].Offset >= offset })
	if i == len(f.records) || f.records[i].Offset != offset {
		if offset >= uint64(len(f.data)) {
			return Record{}, nil, f.errorf("no blob at offset %d: the file has %d bytes", offset, len(f.data))
		}
		return Record{}, nil, f.errorf("no blob at offset %d: none of the %d records starts there", offset, len(f.records))
	}
	r := f.records[i]
	end := r.Data + r.Size
	return r, f.data[r.Data:end:end], nil
}

// Close unmaps the file.
func (f *File) Close() error {
	if !f.mapped {
		return nil
	}
	f.mapped = false
	data := f.data
	f.data, f.records = nil, nil
	if err := unix.Munmap(data); err != nil {
		return f.errorf("unmap: %w", err)
	}
	return nil
}

func (f *File) errorf(format string, args ...any) error {
	return fmt.Errorf("milblob: %s: "+format, append([]any{f.name}, args...)...)
}

// Len is the size of the file in bytes.
func (f *File) Len() int64 { return int64(len(f.data)) }
