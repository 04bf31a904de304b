package checkpoint_test

import (
	"bytes"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
)

// TestBlanks: the ways to read a blank tensor agree, and names make contents
// differ.
func TestBlanks(t *testing.T) {
	b := checkpoint.Blanks{"a": {9000, 3}, "b": {9000, 3}, "c": {}}
	var contents [][]byte
	for _, name := range b.Names() {
		x, ok := b.Tensor(name)
		if !ok || x.Name() != name || x.DType() != checkpoint.BF16 {
			t.Fatalf("tensor %q: %v", name, x)
		}
		var buf bytes.Buffer
		if _, err := x.WriteTo(&buf); err != nil || int64(buf.Len()) != checkpoint.NumBytes(x) {
			t.Fatalf("%s: %d bytes (%v)", name, buf.Len(), err)
		}
		contents = append(contents, buf.Bytes())
		v, err := checkpoint.ReadAll(x)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range v {
			if want := map[byte]float32{0x80: 1, 0: 0.5}[buf.Bytes()[2*i]]; buf.Bytes()[2*i+1] != 0x3f || f != want {
				t.Fatalf("%s: element %d is %g, its bytes % x", name, i, f, buf.Bytes()[2*i:2*i+2])
			}
		}
		part := make([]byte, 2)
		if err := checkpoint.ReadRaw(x, part, 0); err != nil || !bytes.Equal(part, buf.Bytes()[:2]) {
			t.Errorf("%s: raw bytes % x (%v)", name, part, err)
		}
		if err := x.ReadFloat32(make([]float32, 2), len(v)-1); err == nil {
			t.Errorf("%s: no error past the end", name)
		}
	}
	if bytes.Equal(contents[0], contents[1]) {
		t.Error("a and b have one content")
	}
	if _, ok := b.Tensor("d"); ok {
		t.Error("there is a tensor d")
	}
}
