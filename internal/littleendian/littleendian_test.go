package littleendian

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestView(t *testing.T) {
	b := make([]byte, 8, 16)
	binary.LittleEndian.PutUint32(b, math.Float32bits(1.5))
	binary.LittleEndian.PutUint16(b[4:], 0xabcd)
	f, ok := View[float32](b)
	if ok != Host {
		t.Fatalf("aligned bytes: %v", ok)
	}
	if !ok {
		return
	}
	if len(f) != 2 || f[0] != 1.5 {
		t.Errorf("floats %v", f)
	}
	h, _ := View[uint16](b[4:7])
	if len(h) != 1 || h[0] != 0xabcd {
		t.Errorf("halves %x", h)
	}
	h[0] = 7
	if b[4] != 7 || b[5] != 0 {
		t.Error("the view is a copy")
	}
	if _, ok := View[float32](b[1:5]); ok {
		t.Error("misaligned bytes have a view")
	}
}
