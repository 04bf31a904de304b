package quant

import (
	"testing"

	"github.com/smelt-go/smelt/internal/half"
)

func TestPalettizer(t *testing.T) {
	p := NewPalettizer()
	w := make([]uint16, 0, 64)
	for i := range 64 {
		w = append(w, half.FromF32(float32(i%5)-2))
	}
	if err := p.Add(w, nil); err != nil {
		t.Fatal(err)
	}
	table, err := p.Table(3)
	if err != 0 {
		t.Errorf("five values in eight entries have error %g", err)
	}
	codes := make([]byte, len(w))
	p.Codes(codes, w)
	for i, c := range codes {
		if table[c] != w[i] {
			t.Errorf("element %d is %#04x, table[%d] %#04x", i, w[i], c, table[c])
		}
	}
	for _, v := range table[5:] {
		if v != 0 {
			t.Errorf("unused entries are %#04x", table[5:])
		}
	}
	if err := p.Add([]uint16{0, 0x7e00}, nil); err == nil {
		t.Error("a NaN was accepted")
	}
	p.Reset()
	if err := p.Add([]uint16{0x3c00}, nil); err != nil {
		t.Fatal(err)
	}
	if table, err := p.Table(1); table[0] != 0x3c00 || err != 0 {
		t.Errorf("after Reset: %#04x, error %g", table, err)
	}
}

func BenchmarkPalette4(b *testing.B) {
	x, err := gaussianHalves(32 * 640)
	if err != nil {
		b.Fatal(err)
	}
	p := NewPalettizer()
	codes := make([]byte, len(x))
	b.SetBytes(int64(2 * len(x)))
	for b.Loop() {
		p.Reset()
		if err := p.Add(x, nil); err != nil {
			b.Fatal(err)
		}
		p.Table(4)
		p.Codes(codes, x)
	}
	b.ReportMetric(float64(len(p.Values())), "values")
}
