package half

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/x448/float16"
)

func TestToF32EveryHalf(t *testing.T) {
	src := make([]uint16, 1<<16)
	for i := range src {
		src[i] = uint16(i)
	}
	got := make([]float32, len(src))
	if n := F16ToF32(got, src); n != len(src) {
		t.Fatalf("converted %d of %d", n, len(src))
	}
	for i, g := range got {
		want := math.Float32bits(float16.Frombits(uint16(i)).Float32())
		if b := math.Float32bits(g); b != want {
			t.Fatalf("F16ToF32(%#04x) = %#08x, want %#08x", i, b, want)
		}
		if b := math.Float32bits(ToF32(uint16(i))); b != want {
			t.Fatalf("ToF32(%#04x) = %#08x, want %#08x", i, b, want)
		}
	}
}

// edges returns, for each half, the float32 bits around it and around the
// midpoint to its successor, where every rounding decision is made.
func edges() []uint32 {
	var out []uint32
	for h := range uint32(0x7c02) {
		u := math.Float32bits(ToF32(uint16(h)))
		next := math.Float32bits(ToF32(uint16(h + 1)))
		mid := math.Float32bits(float32((float64(math.Float32frombits(u)) + float64(math.Float32frombits(next))) / 2))
		for _, c := range []uint32{u, mid} {
			for d := range uint32(5) {
				out = append(out, c+d-2, (c+d-2)^signBit)
			}
		}
	}
	for _, c := range []uint32{0, minNormal, overflow, infinity, 0x7fc00000, 0x7fffffff, 0x7f800001, 0x00800000} {
		for d := range uint32(9) {
			out = append(out, c+d-4, (c+d-4)^signBit)
		}
	}
	return out
}

func checkBits(t *testing.T, bits []uint32) {
	t.Helper()
	src := make([]float32, len(bits))
	for i, u := range bits {
		src[i] = math.Float32frombits(u)
	}
	got := make([]uint16, len(src))
	F32ToF16(got, src)
	rounded := append([]float32(nil), src...)
	RoundF16(rounded)
	for i, u := range bits {
		want := float16.Fromfloat32(src[i])
		if got[i] != want.Bits() {
			t.Fatalf("F32ToF16(%#08x) = %#04x, want %#04x", u, got[i], want.Bits())
		}
		if h := FromF32(src[i]); h != want.Bits() {
			t.Fatalf("FromF32(%#08x) = %#04x, want %#04x", u, h, want.Bits())
		}
		if r, w := math.Float32bits(rounded[i]), math.Float32bits(want.Float32()); r != w {
			t.Fatalf("RoundF16(%#08x) = %#08x, want %#08x", u, r, w)
		}
	}
}

func TestFromF32Edges(t *testing.T) { checkBits(t, edges()) }

func TestFromF32Strided(t *testing.T) {
	// An odd stride visits every exponent, both signs and all low-bit patterns.
	const n, block = 1 << 22, 1 << 12
	bits := make([]uint32, block)
	u := uint32(1)
	for range n / block {
		for i := range bits {
			bits[i] = u
			u += 1021
		}
		checkBits(t, bits)
	}
}

// TestRoundF16Lanes mixes abnormal values into either lane of a pair, at both
// alignments and every short length.
func TestRoundF16Lanes(t *testing.T) {
	special := edges()
	rng := rand.New(rand.NewPCG(1, 2))
	buf := make([]float32, 40)
	for range 20000 {
		off, n := rng.IntN(2), rng.IntN(len(buf)-1)
		x := buf[off : off+n]
		want := make([]float32, n)
		for i := range x {
			x[i] = rng.Float32()*200 - 100
			if rng.IntN(3) == 0 {
				x[i] = math.Float32frombits(special[rng.IntN(len(special))])
			}
			want[i] = float16.Fromfloat32(x[i]).Float32()
		}
		RoundF16(x)
		for i := range x {
			if math.Float32bits(x[i]) != math.Float32bits(want[i]) {
				t.Fatalf("offset %d length %d element %d: %#08x, want %#08x", off, n, i, math.Float32bits(x[i]), math.Float32bits(want[i]))
			}
		}
	}
}

// TestEveryFloat32 runs over all 2^32 bit patterns: about a minute, so only
// when asked for.
func TestEveryFloat32(t *testing.T) {
	if os.Getenv("SMELT_EXHAUSTIVE") == "" {
		t.Skip("set SMELT_EXHAUSTIVE=1 to check all 2^32 inputs")
	}
	bits := make([]uint32, 1<<16)
	for hi := range uint32(1 << 16) {
		for lo := range bits {
			bits[lo] = hi<<16 | uint32(lo)
		}
		checkBits(t, bits)
	}
}

func TestBF16(t *testing.T) {
	src := make([]uint16, 1<<16)
	for i := range src {
		src[i] = uint16(i)
	}
	wide := make([]float32, len(src))
	BF16ToF32(wide, src)
	back := make([]uint16, len(src))
	F32ToBF16(back, wide)
	for i, w := range wide {
		if math.Float32bits(w) != uint32(i)<<16 {
			t.Fatalf("BF16ToF32(%#04x) = %#08x", i, math.Float32bits(w))
		}
		want := uint16(i)
		if w != w {
			want |= 0x40
		}
		if back[i] != want {
			t.Fatalf("F32ToBF16(%#08x) = %#04x, want %#04x", math.Float32bits(w), back[i], want)
		}
	}
	// Rounding against the definition: the nearer neighbour, the even one on a tie.
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1 << 20 {
		u := rng.Uint32()
		if rng.IntN(4) == 0 {
			u = u&^0xffff | 0x8000
		}
		f := math.Float32frombits(u)
		if f != f || math.IsInf(float64(f), 0) {
			continue
		}
		lo, hi := uint16(u>>16), uint16(u>>16)+1
		dlo := math.Abs(float64(f) - float64(FromBF16(lo)))
		// The successor of the largest finite value stands for 2^128 here.
		hv := float64(FromBF16(hi))
		if math.IsInf(hv, 0) {
			hv = math.Copysign(0x1p128, hv)
		}
		dhi := math.Abs(hv - float64(f))
		want := lo
		if dhi < dlo || dhi == dlo && hi&1 == 0 {
			want = hi
		}
		if got := ToBF16(f); got != want {
			t.Fatalf("ToBF16(%#08x) = %#04x, want %#04x", u, got, want)
		}
	}
}

func BenchmarkRoundF16(b *testing.B) {
	x := make([]float32, 1<<14)
	for i := range x {
		x[i] = float32(i%977)*0.37 + 0.01
	}
	b.SetBytes(int64(len(x) * 4))
	for b.Loop() {
		RoundF16(x)
	}
}

func BenchmarkF32ToF16(b *testing.B) {
	x := make([]float32, 1<<14)
	for i := range x {
		x[i] = float32(i%977)*0.37 - 150
	}
	d := make([]uint16, len(x))
	b.SetBytes(int64(len(x) * 4))
	for b.Loop() {
		F32ToF16(d, x)
	}
}

func BenchmarkF16ToF32(b *testing.B) {
	x := make([]uint16, 1<<14)
	for i := range x {
		x[i] = FromF32(float32(i%977)*0.37 - 150)
	}
	d := make([]float32, len(x))
	b.SetBytes(int64(len(x) * 4))
	for b.Loop() {
		F16ToF32(d, x)
	}
}
