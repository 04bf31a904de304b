package milblob

import "fmt"

// DType is the element type code stored in a blob's metadata.
type DType uint32

// The codes of MILBlob v2. There is none for bool, strings or 64-bit types.
const (
	Float16  DType = 1
	Float32  DType = 2
	UInt8    DType = 3
	Int8     DType = 4
	BFloat16 DType = 5
	Int16    DType = 6
	UInt16   DType = 7
	Int4     DType = 8
	UInt1    DType = 9
	UInt2    DType = 10
	UInt4    DType = 11
	UInt3    DType = 12
	UInt6    DType = 13
	Int32    DType = 14
	UInt32   DType = 15
	F8E4M3FN DType = 16
	F8E5M2   DType = 17
)

var dtypes = [...]struct {
	name string
	bits int
}{
	Float16: {"fp16", 16}, Float32: {"fp32", 32}, UInt8: {"uint8", 8}, Int8: {"int8", 8},
	BFloat16: {"bf16", 16}, Int16: {"int16", 16}, UInt16: {"uint16", 16}, Int4: {"int4", 4},
	UInt1: {"uint1", 1}, UInt2: {"uint2", 2}, UInt4: {"uint4", 4}, UInt3: {"uint3", 3},
	UInt6: {"uint6", 6}, Int32: {"int32", 32}, UInt32: {"uint32", 32},
	F8E4M3FN: {"fp8e4m3fn", 8}, F8E5M2: {"fp8e5m2", 8},
}

// Bits is the width of one element, 0 for an unknown code.
func (d DType) Bits() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].bits
}

func (d DType) String() string {
	if d.Bits() == 0 {
		return fmt.Sprintf("dtype(%d)", uint32(d))
	}
	return dtypes[d].name
}

// Size is the number of bytes that n elements occupy.
func (d DType) Size(n int64) int64 {
	bits := int64(d.Bits())
	// Whole groups of eight elements first: n*bits could overflow.
	return n/8*bits + (n%8*bits+7)/8
}
