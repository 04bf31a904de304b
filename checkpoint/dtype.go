package checkpoint

import "fmt"

// DType is an element type of the safetensors format.
//
// The order of the constants is the format's alignment order: the writer puts
// tensors of a later type first.
type DType uint8

// The element types. The zero DType is invalid.
const (
	Bool       DType = iota + 1 // one byte, 0 or 1
	F4                          // E2M1, two a byte, the first in the low bits
	F6E2M3                      // 6-bit float
	F6E3M2                      // 6-bit float
	U8                          //
	I8                          //
	F8E5M2                      // IEEE-like, with infinities
	F8E4M3                      // finite, NaN at S.1111.111
	F8E8M0                      // power-of-two scale, 2^(e−127)
	F8E4M3FNUZ                  // finite, bias 8, one NaN at 0x80
	F8E5M2FNUZ                  // finite, bias 16, one NaN at 0x80
	I16                         //
	U16                         //
	F16                         // IEEE binary16
	BF16                        // bfloat16
	I32                         //
	U32                         //
	F32                         //
	C64                         // two float32: real, imaginary
	F64                         //
	I64                         //
	U64                         //
)

type dtypeInfo struct {
	name string
	bits int
}

var dtypes = [...]dtypeInfo{
	{"invalid", 0},
	Bool:       {"BOOL", 8},
	F4:         {"F4", 4},
	F6E2M3:     {"F6_E2M3", 6},
	F6E3M2:     {"F6_E3M2", 6},
	U8:         {"U8", 8},
	I8:         {"I8", 8},
	F8E5M2:     {"F8_E5M2", 8},
	F8E4M3:     {"F8_E4M3", 8},
	F8E8M0:     {"F8_E8M0", 8},
	F8E4M3FNUZ: {"F8_E4M3FNUZ", 8},
	F8E5M2FNUZ: {"F8_E5M2FNUZ", 8},
	I16:        {"I16", 16},
	U16:        {"U16", 16},
	F16:        {"F16", 16},
	BF16:       {"BF16", 16},
	I32:        {"I32", 32},
	U32:        {"U32", 32},
	F32:        {"F32", 32},
	C64:        {"C64", 64},
	F64:        {"F64", 64},
	I64:        {"I64", 64},
	U64:        {"U64", 64},
}

// Valid reports whether d is one of the format's types.
func (d DType) Valid() bool { return d != 0 && int(d) < len(dtypes) }

// String returns the spelling safetensors headers use, such as "F8_E4M3".
func (d DType) String() string {
	if !d.Valid() {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Bits returns the size of one element in bits, 0 if d is invalid.
func (d DType) Bits() int {
	if !d.Valid() {
		return 0
	}
	return dtypes[d].bits
}

// ParseDType returns the type with the given header spelling.
func ParseDType(s string) (DType, error) {
	for d, info := range dtypes {
		if d > 0 && info.name == s {
			return DType(d), nil
		}
	}
	return 0, fmt.Errorf("checkpoint: unknown dtype %q", s)
}
