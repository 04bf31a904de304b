package milblob

import (
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"
)

func TestPackVectors(t *testing.T) {
	// Recorded from coremltools' own packer.
	for _, c := range []struct {
		dtype   DType
		codes   []int8
		want    string
		padding uint64
	}{
		{UInt3, []int8{1, 2, 3, 4, 5}, "d158", 1},
		{UInt6, []int8{1, 2, 63}, "81f003", 6},
		{Int4, []int8{-1, 2, -8}, "2f08", 4},
		{UInt1, []int8{1, 0, 1, 1, 0, 0, 0, 0, 1}, "0d01", 7},
		{UInt2, []int8{0, 1, 2, 3, 3}, "e403", 6},
		{UInt4, []int8{1, 2, 3}, "2103", 4},
	} {
		codes := make([]byte, len(c.codes))
		for i, v := range c.codes {
			codes[i] = byte(v)
		}
		packed := Pack(codes, c.dtype.Bits())
		if got := hex.EncodeToString(packed); got != c.want {
			t.Errorf("%s: packed %s, want %s", c.dtype, got, c.want)
		}
		back := make([]byte, len(codes))
		if err := Unpack(back, packed, c.dtype.Bits(), 0); err != nil {
			t.Fatalf("%s: %v", c.dtype, err)
		}
		if c.dtype == Int4 {
			SignExtend4(back)
		}
		for i := range back {
			if back[i] != codes[i] {
				t.Errorf("%s: element %d is %d, want %d", c.dtype, i, int8(back[i]), c.codes[i])
			}
		}
		file := write(t, Bytes{c.dtype, int64(len(codes)), packed})
		if got := file.Records()[0].Padding; got != c.padding {
			t.Errorf("%s: padding %d, want %d", c.dtype, got, c.padding)
		}
	}
}

func TestUnpackAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SampledFrom([]int{1, 2, 3, 4, 6, 8}).Draw(t, "bits")
		codes := rapid.SliceOf(rapid.ByteMax(1<<bits-1)).Draw(t, "codes")
		packed := Pack(codes, bits)
		first := rapid.IntRange(0, len(codes)).Draw(t, "first")
		part := make([]byte, rapid.IntRange(0, len(codes)-first).Draw(t, "n"))
		if err := Unpack(part, packed, bits, first); err != nil {
			t.Fatal(err)
		}
		for i, v := range part {
			if v != codes[first+i] {
				t.Fatalf("element %d: %d, want %d", first+i, v, codes[first+i])
			}
		}
	})
}

func TestUnpackRefuses(t *testing.T) {
	if err := Unpack(make([]byte, 9), []byte{0}, 1, 0); err == nil {
		t.Error("9 one-bit elements were read from one byte")
	}
	if err := Unpack(make([]byte, 1), []byte{0}, 5, 0); err == nil {
		t.Error("5-bit elements were accepted")
	}
}
