package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// image returns the bytes of a file with the given header text and data.
func image(head string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(b, head...)
	return append(b, make([]byte, data)...)
}

func writeImage(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHeaderRejected(t *testing.T) {
	one := func(fields string) string { return `{"a":{` + fields + `}}` }
	huge := binary.LittleEndian.AppendUint64(nil, 100_000_001)
	for _, tc := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty file", nil, "too few for a safetensors header"},
		{"seven bytes", make([]byte, 7), "file has 7 bytes"},
		{"header over the limit", append(huge, make([]byte, 64)...), "header of 100000001 bytes exceeds the limit of 100000000"},
		{"length all ones", bytes.Repeat([]byte{255}, 64), "exceeds the limit"},
		{"header cut", image(one(`"dtype":"U8","shape":[],"data_offsets":[0,1]`), 0)[:30], "file ends at byte 30, header should end at 60 (truncated download?)"},
		{"no JSON", image("        ", 0), "JSON ends where '{' should be"},
		{"null", image("null", 0), "'n' where '{' should be"},
		{"array", image("[]", 0), "'[' where '{' should be"},
		{"two values", image("{} {}", 0), "extra characters"},
		{"zero padding", image("{}\x00\x00", 0), "extra characters"},
		{"unclosed", image(`{"a":`, 0), "JSON ends"},
		{"invalid UTF-8", image("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "not valid UTF-8"},
		{"lone surrogate", image(`{"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "lone surrogate"},
		{"reversed surrogates", image(`{"\udc00\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "lone surrogate"},
		{"surrogate before text", image(`{"\ud800abcdef":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "lone surrogate"},
		{"bad hex", image(`{"\u12g4":{}}`, 0), `bad \u escape`},
		{"bad escape", image(`{"\x41":{}}`, 0), `unknown escape \x`},
		{"raw control character", image("{\"a\nb\":{}}", 0), "control character"},
		{"duplicate tensor", image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `duplicate key "a"`},
		{"duplicate by escape", image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `duplicate key "a"`},
		{"duplicate field", image(one(`"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]`), 1), `duplicate key "dtype"`},
		{"extra field", image(one(`"dtype":"U8","shape":[1],"data_offsets":[0,1],"scale":2`), 1), `tensor "a": unknown key "scale"`},
		{"entry no object", image(`{"a":3}`, 0), `tensor "a"`},
		{"unknown dtype", image(one(`"dtype":"F12","shape":[1],"data_offsets":[0,1]`), 1), `tensor "a": unknown dtype "F12"`},
		{"dtype case", image(one(`"dtype":"u8","shape":[1],"data_offsets":[0,1]`), 1), `unknown dtype "u8"`},
		{"dtype no string", image(one(`"dtype":8,"shape":[1],"data_offsets":[0,1]`), 1), "dtype"},
		{"dtype missing", image(one(`"shape":[1],"data_offsets":[0,1]`), 1), "dtype is missing"},
		{"shape missing", image(one(`"dtype":"U8","data_offsets":[0,1]`), 1), "shape is missing"},
		{"offsets missing", image(one(`"dtype":"U8","shape":[1]`), 1), "data_offsets is missing"},
		{"shape null", image(one(`"dtype":"U8","shape":null,"data_offsets":[0,1]`), 1), "'n' where '[' should be"},
		{"negative dimension", image(one(`"dtype":"U8","shape":[-1],"data_offsets":[0,1]`), 1), "shape: no non-negative integer"},
		{"fractional dimension", image(one(`"dtype":"U8","shape":[1.0],"data_offsets":[0,1]`), 1), "shape: no integer"},
		{"exponent", image(one(`"dtype":"U8","shape":[1e0],"data_offsets":[0,1]`), 1), "shape: no integer"},
		{"leading zero", image(one(`"dtype":"U8","shape":[01],"data_offsets":[0,1]`), 1), "leading zero"},
		{"dimension overflow", image(one(`"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]`), 1), "integer overflows"},
		{"shape overflow", image(one(`"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]`), 0), "overflows"},
		{"shape overflow beside zero", image(one(`"dtype":"U8","shape":[4294967296,0,4294967296],"data_offsets":[0,0]`), 0), "overflows"},
		{"byte size overflow", image(one(`"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]`), 0), "overflows"},
		{"rank", image(one(`"dtype":"U8","shape":[`+strings.Repeat("1,", 64)+`1],"data_offsets":[0,1]`), 1), "more than 64 dimensions"},
		{"one offset", image(one(`"dtype":"U8","shape":[1],"data_offsets":[0]`), 1), "fewer than two"},
		{"three offsets", image(one(`"dtype":"U8","shape":[1],"data_offsets":[0,1,2]`), 1), "more than two"},
		{"backward offsets", image(one(`"dtype":"U8","shape":[1],"data_offsets":[1,0]`), 1), "run backwards"},
		{"size against shape", image(one(`"dtype":"F32","shape":[2],"data_offsets":[0,4]`), 4), "F32 [2] needs 8 bytes, data_offsets span 4"},
		{"half a byte", image(one(`"dtype":"F4","shape":[3],"data_offsets":[0,2]`), 2), "whole bytes"},
		{"hole", image(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), `tensor "b": data starts at byte`},
		{"hole at the start", image(one(`"dtype":"U8","shape":[1],"data_offsets":[1,2]`), 2), "leaving a hole"},
		{"overlap", image(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), `inside the data of tensor "a"`},
		{"same bytes twice", image(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2), `inside the data of tensor "a"`},
		{"trailing bytes", image(one(`"dtype":"U8","shape":[1],"data_offsets":[0,1]`), 3), "2 bytes after the last tensor"},
		{"trailing bytes, no tensors", image("{}", 1), "1 bytes after the last tensor"},
		{"missing bytes", image(one(`"dtype":"U8","shape":[9],"data_offsets":[0,9]`), 4), `tensor "a": data ends at byte 65, header says 70 (truncated download?)`},
		{"metadata null", image(`{"__metadata__":null}`, 0), "__metadata__: no object of strings"},
		{"metadata number", image(`{"__metadata__":{"a":1}}`, 0), `__metadata__: value of "a" is not a string`},
		{"metadata nested", image(`{"__metadata__":{"a":{}}}`, 0), "is not a string"},
		{"metadata duplicate", image(`{"__metadata__":{"a":"","a":""}}`, 0), `__metadata__: duplicate key "a"`},
		{"metadata twice", image(`{"__metadata__":{},"__metadata__":{}}`, 0), "duplicate key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := OpenFile(writeImage(t, tc.file))
			if err == nil {
				f.Close()
				t.Fatalf("accepted, want an error with %q", tc.want)
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "checkpoint: x.safetensors: ") {
				t.Fatalf("error %q, want %q", err, tc.want)
			}
		})
	}
}

func TestHeaderAccepted(t *testing.T) {
	type got struct {
		Name  string
		DType string
		Shape []int
		Bytes int64
	}
	for _, tc := range []struct {
		name string
		file []byte
		want []got
	}{
		{"no tensors", image("{}", 0), nil},
		{"white space around", image(" \n\t\r{ } \n", 0), nil},
		{"scalar", image(`{"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}}`, 8), []got{{"s", "F64", []int{}, 8}}},
		{"empty tensors share an offset", image(`{"a":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"c":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
			[]got{{"a", "F32", []int{0, 3}, 0}, {"b", "F32", []int{0}, 0}, {"c", "U8", []int{1}, 1}}},
		{"any order, fields too", image(`{"b":{"data_offsets":[2,4],"shape":[1],"dtype":"BF16"},"a":{"shape":[2],"dtype":"I8","data_offsets":[0,2]}}`, 4),
			[]got{{"a", "I8", []int{2}, 2}, {"b", "BF16", []int{1}, 2}}},
		{"escapes", image(`{"\u00e9\ud83d\ude00\"\\\/\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), []got{{"é😀\"\\/\n", "U8", []int{1}, 1}}},
		{"sub-byte", image(`{"q":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]},"r":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[3,6]}}`, 6),
			[]got{{"q", "F4", []int{2, 3}, 3}, {"r", "F6_E2M3", []int{4}, 3}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := OpenFile(writeImage(t, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var list []got
			for _, name := range f.Names() {
				x, _ := f.Tensor(name)
				list = append(list, got{x.Name(), x.DType().String(), x.Shape(), NumBytes(x)})
			}
			if d := cmp.Diff(tc.want, list); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestEveryDTypeIsRecognised(t *testing.T) {
	// Names and sizes as the format defines them.
	for spelling, bits := range map[string]int{
		"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
		"F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
		"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	} {
		head := fmt.Sprintf(`{"a":{"dtype":%q,"shape":[8],"data_offsets":[0,%d]}}`, spelling, bits)
		f, err := OpenFile(writeImage(t, image(head, bits)))
		if err != nil {
			t.Error(err)
			continue
		}
		x, _ := f.Tensor("a")
		if x.DType().String() != spelling || x.DType().Bits() != bits {
			t.Errorf("%s: got %v of %d bits", spelling, x.DType(), x.DType().Bits())
		}
		f.Close()
	}
}
