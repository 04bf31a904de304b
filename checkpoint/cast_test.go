package checkpoint

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"
)

func TestAsType(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	src := make([]float32, 2*castElements+7)
	for i := range src {
		src[i] = math.Float32frombits(rng.Uint32())
	}
	copy(src, []float32{0, 1, 65504, 65519.99, 65520, -65520, 0x1p-24, 0x1p-25, 1.5 * 0x1p-25, nan, inf, -inf, float32(math.Copysign(0, -1))})
	x := NewFloat32("x", []int{len(src)}, src)

	want := make([]float32, len(src))
	for i, f := range src {
		want[i] = float16.Fromfloat32(f).Float32()
	}
	checkCast(t, AsType(x, F16), F16, want)

	for i, f := range src {
		// bf16 is the float32 prefix: round the decimal value to 8 significant bits.
		want[i] = f
		if u := math.Float32bits(f); f == f && u&0xffff != 0 {
			lo := math.Float32frombits(u &^ 0xffff)
			hi := math.Float32frombits(u&^0xffff + 0x10000)
			next := float64(hi)
			if math.IsInf(next, 0) {
				next = math.Copysign(0x1p128, next)
			}
			dlo, dhi := math.Abs(float64(f)-float64(lo)), math.Abs(next-float64(f))
			want[i] = lo
			if dhi < dlo || dhi == dlo && u>>16&1 == 1 {
				want[i] = hi
			}
		}
	}
	checkCast(t, AsType(x, BF16), BF16, want)

	if AsType(x, F32) != x {
		t.Error("a cast to the tensor's own type is not the tensor")
	}
	ints := NewInt32("i", []int{3}, []int32{-7, 70000, 1<<24 + 1})
	checkCast(t, AsType(ints, F32), F32, []float32{-7, 70000, 1 << 24})
	checkCast(t, AsType(ints, F16), F16, []float32{-7, inf, inf})
	checkCast(t, AsType(AsType(ints, BF16), F32), F32, []float32{-7, 70144, 1 << 24})
}

func checkCast(t *testing.T, x Tensor, dt DType, want []float32) {
	t.Helper()
	if x.DType() != dt {
		t.Fatalf("dtype %v", x.DType())
	}
	read, err := ReadAll(x)
	if err != nil {
		t.Fatal(err)
	}
	checkValues(t, "read", want, read)
	raw, err := ReadBytes(x)
	if err != nil {
		t.Fatal(err)
	}
	written := make([]float32, len(want))
	for i := range written {
		switch dt {
		case F16:
			written[i] = float16.Frombits(binary.LittleEndian.Uint16(raw[2*i:])).Float32()
		case BF16:
			written[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		case F32:
			written[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	}
	checkValues(t, "written", want, written)
}

func checkValues(t *testing.T, what string, want, got []float32) {
	t.Helper()
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && (w == w || got[i] == got[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], w)
		}
	}
}
