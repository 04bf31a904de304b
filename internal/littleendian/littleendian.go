// Package littleendian looks at little-endian bytes as numbers, without a copy
// where the host's byte order and the bytes' alignment allow it.
package littleendian

import (
	"encoding/binary"
	"unsafe"
)

// Number is an element type of stored tensors.
type Number interface {
	uint16 | float32 | int32 | int64
}

// Host says that the host stores numbers as the files do.
var Host = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// View returns b as numbers that share its memory, or false where that is not
// possible. Bytes beyond the last whole number are left out.
func View[T Number](b []byte) ([]T, bool) {
	var zero T
	size := unsafe.Sizeof(zero)
	p := unsafe.Pointer(unsafe.SliceData(b))
	if !Host || uintptr(p)%size != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), uintptr(len(b))/size), true
}

// Bytes returns the memory of v if it holds little-endian numbers, and false on
// hosts where it does not.
func Bytes[T Number](v []T) ([]byte, bool) {
	if !Host || len(v) == 0 {
		return nil, Host
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0]))), true
}
