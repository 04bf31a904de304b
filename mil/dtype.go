package mil

import "fmt"

// DType is the element type of a tensor. The zero value is invalid.
type DType uint8

// Element types of ML Programs, in the order of their width and kind. The
// names follow the textual MIL spelling.
const (
	InvalidDType DType = iota
	Bool
	String
	Float16
	Float32
	Float64
	BFloat16
	Float8E4M3FN
	Float8E5M2
	Int4
	Int8
	Int16
	Int32
	Int64
	UInt1
	UInt2
	UInt3
	UInt4
	UInt6
	UInt8
	UInt16
	UInt32
	UInt64
	numDTypes
)

var dtypeInfo = [numDTypes]struct {
	name string
	bits int
}{
	InvalidDType: {"invalid", 0},
	Bool:         {"bool", 8},
	String:       {"string", 0},
	Float16:      {"fp16", 16},
	Float32:      {"fp32", 32},
	Float64:      {"fp64", 64},
	BFloat16:     {"bf16", 16},
	Float8E4M3FN: {"fp8e4m3fn", 8},
	Float8E5M2:   {"fp8e5m2", 8},
	Int4:         {"int4", 4},
	Int8:         {"int8", 8},
	Int16:        {"int16", 16},
	Int32:        {"int32", 32},
	Int64:        {"int64", 64},
	UInt1:        {"uint1", 1},
	UInt2:        {"uint2", 2},
	UInt3:        {"uint3", 3},
	UInt4:        {"uint4", 4},
	UInt6:        {"uint6", 6},
	UInt8:        {"uint8", 8},
	UInt16:       {"uint16", 16},
	UInt32:       {"uint32", 32},
	UInt64:       {"uint64", 64},
}

// String returns the MIL spelling: fp16, int32, uint4, bool, ….
func (d DType) String() string {
	if d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypeInfo[d].name
}

// ParseDType is the inverse of DType.String.
func ParseDType(s string) (DType, error) {
	for d := Bool; d < numDTypes; d++ {
		if dtypeInfo[d].name == s {
			return d, nil
		}
	}
	return InvalidDType, fmt.Errorf("mil: unknown dtype %q", s)
}

// Bits is the storage width of one element; sub-byte types are packed.
// It is 0 for strings. A bool takes one byte.
func (d DType) Bits() int {
	if d >= numDTypes {
		return 0
	}
	return dtypeInfo[d].bits
}

// IsFloat reports whether d is a floating point type.
func (d DType) IsFloat() bool { return d >= Float16 && d <= Float8E5M2 }

// IsInt reports whether d is an integer type (bool is not).
func (d DType) IsInt() bool { return d >= Int4 && d < numDTypes }

// IsSigned reports whether d is a signed integer type.
func (d DType) IsSigned() bool { return d >= Int4 && d <= Int64 }

// Domain is a set of element types.
type Domain uint32

// Dom makes a Domain of the given types.
func Dom(ds ...DType) Domain {
	var m Domain
	for _, d := range ds {
		m |= 1 << d
	}
	return m
}

// Has reports whether d is in the set.
func (m Domain) Has(d DType) bool { return d < numDTypes && m>>d&1 == 1 }

// String lists the members, for error messages.
func (m Domain) String() string {
	s := ""
	for d := Bool; d < numDTypes; d++ {
		if m.Has(d) {
			if s != "" {
				s += ", "
			}
			s += d.String()
		}
	}
	return "[" + s + "]"
}
