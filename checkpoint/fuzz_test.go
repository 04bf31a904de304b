package checkpoint

import (
	"bytes"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/nlpodyssey/safetensors"
)

// FuzzHeader checks that whatever is accepted is consistent, reads without
// trouble, and survives being written again.
func FuzzHeader(f *testing.F) {
	f.Add(image("{}", 0))
	f.Add(image(`{"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}}`, 8))
	f.Add(image(` {"\u00e9":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},"b":{"dtype":"F64","shape":[],"data_offsets":[1,9]}} `, 9))
	f.Add(image(`{"\ud83d\ude00":{"dtype":"BOOL","shape":[0,9],"data_offsets":[0,0]}}`, 0))
	f.Add(image(`{"a":{"dtype":"U8","shape":[9223372036854775807,2],"data_offsets":[0,0]}}`, 0))
	f.Add(bytes.Repeat([]byte{255}, 16))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := readHeader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		var total int64
		var tensors []Tensor
		common := true
		for _, e := range h.entries {
			if !utf8.ValidString(e.name) {
				t.Fatalf("name %q", e.name)
			}
			begin := h.dataStart + e.begin
			x, err := NewRaw(e.name, e.dtype, e.shape, file[begin:h.dataStart+e.end])
			if err != nil {
				t.Fatal(err)
			}
			if readable(e.dtype) {
				if _, err := ReadAll(x); err != nil {
					t.Fatal(err)
				}
			}
			total += NumBytes(x)
			tensors = append(tensors, x)
			common = common && otherCanRead(x)
		}
		if total != int64(len(file))-h.dataStart {
			t.Fatalf("tensors cover %d of %d bytes", total, int64(len(file))-h.dataStart)
		}
		if _, err := safetensors.Deserialize(file); err != nil && common {
			t.Fatalf("accepted here, not by the other implementation: %v", err)
		}
		sorted, head, err := layOut(tensors, h.metadata)
		if err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := stream(&again, sorted, head); err != nil {
			t.Fatal(err)
		}
		h2, err := readHeader(bytes.NewReader(again.Bytes()), int64(again.Len()))
		if err != nil || len(h2.entries) != len(h.entries) || len(h2.metadata) != len(h.metadata) {
			t.Fatalf("written again: %d entries of %d, error %v", len(h2.entries), len(h.entries), err)
		}
		if h2.dataStart%8 != 0 {
			t.Fatalf("data starts at byte %d", h2.dataStart)
		}
	})
}

// otherCanRead reports whether the other implementation knows the dtype; it
// computes sizes in another order, so shapes with a zero stay out, too.
func otherCanRead(x Tensor) bool {
	for _, dt := range otherDTypes {
		if dt == x.DType() {
			return NumElements(x) > 0
		}
	}
	return false
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":3},"weight_map":{"a":"model-00001-of-00001.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"\u0061":"x.safetensors","b":"../x.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{},"x":[[1e9,{"y":null}]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		x, err := parseIndex(text)
		if err != nil {
			return
		}
		for name, shard := range x.shardOf {
			if !utf8.ValidString(name) || checkShardName(shard) != nil {
				t.Fatalf("accepted %q in %q", name, shard)
			}
		}
		var buf bytes.Buffer
		encodeIndex(&buf, x.shardOf, 0)
		y, err := parseIndex(buf.Bytes())
		if err != nil || len(y.shardOf) != len(x.shardOf) {
			t.Fatalf("written again: %v, error %v", y, err)
		}
	})
}

// TestHeaderMutations flips each byte of a small file: every result is either
// refused or consistent.
func TestHeaderMutations(t *testing.T) {
	good := image(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}}`, 5)
	accepted := 0
	for i := range good {
		for _, c := range []byte{0, '0', '9', '"', '{', ',', ' ', 0xff} {
			file := bytes.Clone(good)
			file[i] = c
			h, err := readHeader(bytes.NewReader(file), int64(len(file)))
			if err != nil {
				continue
			}
			accepted++
			for _, e := range h.entries {
				n, err := byteSize(e.dtype, e.shape)
				if err != nil || n != e.end-e.begin || h.dataStart+e.end > int64(len(file)) {
					t.Errorf("byte %d = %q: entry %+v", i, c, e)
				}
			}
		}
		if _, err := readHeader(bytes.NewReader(good[:i]), int64(i)); err == nil {
			t.Errorf("a file cut to %d bytes is accepted", i)
		}
	}
	if accepted == 0 {
		t.Error("no mutation was accepted, not even in names")
	}
}

// failing claims a size it cannot deliver.
type failing struct{ n int }

func (f failing) ReadAt(b []byte, off int64) (int, error) {
	if off >= int64(f.n) {
		return 0, io.EOF
	}
	n := copy(b, image("{}      ", 0)[off:f.n])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func TestHeaderShrinks(t *testing.T) {
	for _, n := range []int{0, 4, 8, 12} {
		if _, err := readHeader(failing{n}, 16); err == nil {
			t.Errorf("%d of 16 bytes: no error", n)
		}
	}
	if _, err := readHeader(failing{16}, 16); err != nil {
		t.Error(err)
	}
}
