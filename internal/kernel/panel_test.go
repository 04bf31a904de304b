package kernel

import (
	"fmt"
	"slices"
	"testing"
)

// Products of many rows are made of panels; a single row is not, and must have
// the same bits.
func TestPanelsKeepTheOrder(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		if f := cur.panel; f != nil {
			defer func(old panelForms) { *f = old }(*f)
			f.fromF32, f.fromF16 = 0, 0
		}
		for _, k := range []int{7, 16, 129, 143, 160, 255, 576} {
			for _, rows := range []int{32, 33, 41, 43, 97, panelRows + 3} {
				for _, n := range []int{panelLeastCols, panelLeastCols + 1, 143, 144, 175} {
					if rows > 50 && n != 143 {
						continue
					}
					const gap = 3
					x, w := numbers(31, rows*(k+gap)), numbers(32, n*(k+gap))
					h := halves(w)
					for _, form := range []string{"f16", "f32"} {
						ldd := n + gap
						got, want := make([]float32, rows*ldd), make([]float32, rows*ldd)
						for i := range got {
							got[i], want[i] = 12345, 12345
						}
						if form == "f16" {
							MulF16(got, ldd, x, k+gap, rows, h, k+gap, n, k)
						} else {
							MulF32(got, ldd, x, k+gap, rows, w, k+gap, n, k)
						}
						for i := range rows {
							if form == "f16" {
								MulF16(want[i*ldd:], ldd, x[i*(k+gap):], k+gap, 1, h, k+gap, n, k)
							} else {
								MulF32(want[i*ldd:], ldd, x[i*(k+gap):], k+gap, 1, w, k+gap, n, k)
							}
						}
						for i := range got {
							if got[i] != want[i] {
								t.Fatalf("%s %d×%d×%d [%d,%d]: %v, alone %v", form, rows, n, k, i/ldd, i%ldd, got[i], want[i])
							}
						}
					}
				}
			}
		}
	})
}

// Rows that are packed once give the same bits, from codes as well.
func TestLeft(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		f := cur.panel
		if f == nil {
			if new(Left).Prepare(make([]float32, 64*4096), 4096, 64, 4096, 4096) {
				t.Error("packs for the Go form")
			}
			return
		}
		defer func(old panelForms) { *f = old }(*f)
		f.fromF32 = 0
		const n, k = 150, 64
		p := &Packed{N: n, K: k, Bits: 4, Codes: make([]byte, n*k/2), Block: 32, BlockRows: 1,
			Scale: Numbers{F32: numbers(41, n*k/32)}}
		for i := range p.Codes {
			p.Codes[i] = byte(i * 37)
		}
		if err := p.Prepare(); err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{32, 50, 128} {
			x := numbers(42, rows*(k+1))
			want, got, wide := make([]float32, rows*n), make([]float32, rows*n), make([]float32, n*k)
			p.Mul(want, n, x, k+1, rows, 0, n)
			var l Left
			if !l.Prepare(x, k+1, rows, n, k) {
				t.Fatal("does not pack")
			}
			for i := l.Tiles() - 1; i >= 0; i-- {
				l.Pack(i, i+1)
			}
			for _, cut := range [][2]int{{0, 33}, {33, n}} {
				p.MulLeft(got[cut[0]:], n, &l, cut[0], cut[1]-cut[0])
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d rows: other bits from codes", rows)
			}
			clear(got)
			p.Rows(wide, 0, n)
			l.MulF32(got, n, wide, k, n)
			if !slices.Equal(got, want) {
				t.Errorf("%d rows: other bits", rows)
			}
		}
	})
}

func BenchmarkGemm(b *testing.B) {
	for _, s := range [][3]int{{512, 512, 512}, {512, 2048, 640}, {512, 640, 2048}, {64, 8192, 2048}, {128, 4096, 4096}, {128, 1536, 576}, {128, 576, 1536}} {
		t, n, k := s[0], s[1]/2, s[2] // what one of two threads does
		x, w, dst := numbers(1, t*k), numbers(2, n*k), make([]float32, t*n)
		h := halves(w)
		b.Run(fmt.Sprintf("f32/%d×%d×%d", s[0], s[1], s[2]), func(b *testing.B) {
			for b.Loop() {
				MulF32(dst, n, x, k, t, w, k, n, k)
			}
			b.ReportMetric(2*float64(b.N)*float64(t*n*k)/1e9/b.Elapsed().Seconds(), "GFLOP/s")
		})
		b.Run(fmt.Sprintf("f16/%d×%d×%d", s[0], s[1], s[2]), func(b *testing.B) {
			for b.Loop() {
				MulF16(dst, n, x, k, t, h, k, n, k)
			}
			b.ReportMetric(2*float64(b.N)*float64(t*n*k)/1e9/b.Elapsed().Seconds(), "GFLOP/s")
		})
	}
}
