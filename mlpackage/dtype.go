package mlpackage

import (
	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/internal/milblob"
	"github.com/smelt-go/smelt/mil"
)

// form says how the elements of one type are stored: the code in the program,
// the code in a weight file (0: never there), the first specification version
// whose writer puts it there, and the field of an immediate.
type form struct {
	code  coremlproto.DataType
	blob  milblob.DType
	since int
	field field
}

// field is the member of an immediate tensor that holds the elements.
type field int

const (
	inBytes field = iota + 1
	inInts
	inLongs
	inFloats
	inDoubles
	inBools
	inStrings
)

var forms = map[mil.DType]form{
	mil.Bool:         {coremlproto.DataType_BOOL, 0, 0, inBools},
	mil.String:       {coremlproto.DataType_STRING, 0, 0, inStrings},
	mil.Float16:      {coremlproto.DataType_FLOAT16, milblob.Float16, 6, inBytes},
	mil.Float32:      {coremlproto.DataType_FLOAT32, milblob.Float32, 6, inFloats},
	mil.Float64:      {coremlproto.DataType_FLOAT64, 0, 0, inDoubles},
	mil.BFloat16:     {coremlproto.DataType_BFLOAT16, milblob.BFloat16, 9, inBytes},
	mil.Float8E4M3FN: {coremlproto.DataType_FLOAT8E4M3FN, milblob.F8E4M3FN, 9, inBytes},
	mil.Float8E5M2:   {coremlproto.DataType_FLOAT8E5M2, milblob.F8E5M2, 9, inBytes},
	mil.Int4:         {coremlproto.DataType_INT4, milblob.Int4, 6, inBytes},
	mil.Int8:         {coremlproto.DataType_INT8, milblob.Int8, 6, inBytes},
	mil.Int16:        {coremlproto.DataType_INT16, milblob.Int16, 9, inInts},
	mil.Int32:        {coremlproto.DataType_INT32, milblob.Int32, 9, inInts},
	mil.Int64:        {coremlproto.DataType_INT64, 0, 0, inLongs},
	mil.UInt1:        {coremlproto.DataType_UINT1, milblob.UInt1, 6, inBytes},
	mil.UInt2:        {coremlproto.DataType_UINT2, milblob.UInt2, 6, inBytes},
	mil.UInt3:        {coremlproto.DataType_UINT3, milblob.UInt3, 6, inBytes},
	mil.UInt4:        {coremlproto.DataType_UINT4, milblob.UInt4, 6, inBytes},
	mil.UInt6:        {coremlproto.DataType_UINT6, milblob.UInt6, 6, inBytes},
	mil.UInt8:        {coremlproto.DataType_UINT8, milblob.UInt8, 6, inBytes},
	mil.UInt16:       {coremlproto.DataType_UINT16, milblob.UInt16, 9, inInts},
	mil.UInt32:       {coremlproto.DataType_UINT32, milblob.UInt32, 9, inBytes},
	mil.UInt64:       {coremlproto.DataType_UINT64, 0, 0, inLongs},
}

var dtypeOf = func() map[coremlproto.DataType]mil.DType {
	m := map[coremlproto.DataType]mil.DType{}
	for d, f := range forms {
		m[f.code] = d
	}
	return m
}()

// smallest is the number of elements from which a constant goes to the weight file.
const smallest = 10

// storable says whether a constant belongs into the weight file.
func storable(t mil.TensorType, spec int) bool {
	f := forms[t.DType]
	return f.blob != 0 && spec >= f.since && t.NumElements() >= smallest
}
