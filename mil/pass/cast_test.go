package pass

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/x448/float16"
	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
)

// choppy writes its bytes in pieces of the given sizes, over and over.
type choppy struct {
	mil.Const
	sizes []int
	calls int
}

func (c *choppy) WriteTo(w io.Writer) (int64, error) {
	c.calls++
	b, err := mil.ConstBytes(c.Const)
	if err != nil {
		return 0, err
	}
	var n int64
	for i := 0; len(b) > 0; i++ {
		k := min(c.sizes[i%len(c.sizes)], len(b))
		m, err := w.Write(b[:k])
		n += int64(m)
		if err != nil {
			return n, err
		}
		b = b[k:]
	}
	return n, nil
}

func literalOf(d mil.DType, v []float32) mil.Const {
	if d != mil.BFloat16 {
		f := make([]float64, len(v))
		for i, x := range v {
			f[i] = float64(x)
		}
		return mil.NewFloats(d, []int{len(v)}, f...)
	}
	b := make([]byte, 0, 2*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(x)>>16))
	}
	return &mil.Literal{T: mil.T(d, len(v)), Data: b}
}

func bytesOf(t testing.TB, c mil.Const) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := c.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) || n != c.Type().NumBytes() {
		t.Fatalf("WriteTo says %d bytes, wrote %d, the type %v has %d", n, b.Len(), c.Type(), c.Type().NumBytes())
	}
	return b.Bytes()
}

// A lazily cast and scaled constant has exactly the bytes of float32
// arithmetic rounded once, however its source cuts its writes.
func TestCastConstBits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		from := rapid.SampledFrom([]mil.DType{mil.Float16, mil.BFloat16, mil.Float32, mil.Float64}).Draw(rt, "from")
		to := rapid.SampledFrom([]mil.DType{mil.Float16, mil.Float32}).Draw(rt, "to")
		factor := math.Ldexp(1, rapid.IntRange(-6, 3).Draw(rt, "exp"))
		v := rapid.SliceOfN(rapid.Float32Range(-4000, 4000), 0, 50).Draw(rt, "v")
		src := &choppy{Const: literalOf(from, v), sizes: rapid.SliceOfN(rapid.IntRange(1, 9), 1, 5).Draw(rt, "sizes")}
		vals, err := mil.ConstFloats(src.Const)
		if err != nil {
			rt.Fatal(err)
		}
		c := &CastConst{Src: src, To: to, Factor: float32(factor), Name: "w"}
		var got bytes.Buffer
		if _, err := c.WriteTo(&got); err != nil {
			rt.Fatal(err)
		}
		for i, x := range vals {
			f := float32(x) * float32(factor)
			if to == mil.Float16 {
				if g, w := binary.LittleEndian.Uint16(got.Bytes()[2*i:]), float16.Fromfloat32(f).Bits(); g != w {
					rt.Fatalf("element %d: %v·%v gives %#04x, want %#04x", i, x, factor, g, w)
				}
			} else if g, w := binary.LittleEndian.Uint32(got.Bytes()[4*i:]), math.Float32bits(f); g != w {
				rt.Fatalf("element %d: %v·%v gives %#08x, want %#08x", i, x, factor, g, w)
			}
		}
		var again bytes.Buffer
		if _, err := c.WriteTo(&again); err != nil || !bytes.Equal(got.Bytes(), again.Bytes()) || src.calls != 2 {
			rt.Fatalf("the second WriteTo differs (error %v, %d reads)", err, src.calls)
		}
	})
}

// Sources longer than the buffer, with a cut in the middle of an element.
func TestCastConstLong(t *testing.T) {
	v := make([]float32, 2*blockElems+77)
	for i := range v {
		v[i] = float32(i%4001) - 2000
	}
	want := bytesOf(t, &CastConst{Src: literalOf(mil.Float32, v), To: mil.Float16, Factor: 1})
	for _, sizes := range [][]int{{1 << 30}, {3}, {4*blockElems + 1, 7}, {1, 1 << 20}} {
		got := bytesOf(t, &CastConst{Src: &choppy{Const: literalOf(mil.Float32, v), sizes: sizes}, To: mil.Float16, Factor: 1})
		if !bytes.Equal(got, want) {
			t.Errorf("writes of %v give other bytes", sizes)
		}
	}
	for i := range v {
		if g := float16.Frombits(binary.LittleEndian.Uint16(want[2*i:])).Float32(); g != v[i] {
			t.Fatalf("element %d is %v, want %v", i, g, v[i])
		}
	}
}

func TestCastScaleCompose(t *testing.T) {
	// 1.0004883 = 1 + 2^-11 lies between fp16 values 1 and 1+2^-10; at 2^-14
	// times that the grid is ten bits coarser.
	v := []float32{1 + 1.0/2048 + 1.0/4096, -3.1415927, 1.0 / 3}
	src := literalOf(mil.Float32, v)
	const f = 1.0 / (1 << 16)
	cast, err := Cast("w", src, mil.Float16)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Scale("w", cast, f)
	if err != nil {
		t.Fatal(err)
	}
	scaled, err := Scale("w", src, f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Cast("w", scaled, mil.Float16)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, x := range v {
		want = binary.LittleEndian.AppendUint16(want, float16.Fromfloat32(x*f).Bits())
	}
	for name, c := range map[string]mil.Const{"scale of cast": a, "cast of scale": b} {
		if got := bytesOf(t, c); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x (one rounding)", name, got, want)
		}
		if k, ok := c.(*CastConst); !ok || k.Src != src {
			t.Errorf("%s: not composed into one constant", name)
		}
	}
	if keyOf(a) != keyOf(b) {
		t.Error("equal compositions have different keys")
	}
	back, err := Scale("w", scaled, 1/f)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytesOf(t, back); !bytes.Equal(got, bytesOf(t, src)) {
		t.Errorf("scaling there and back gives %x", got)
	}
	// A narrowing cast must not be undone by a widening one.
	wide, err := Cast("w", cast, mil.Float32)
	if err != nil {
		t.Fatal(err)
	}
	x, err := mil.ConstFloats(wide)
	if err != nil || float32(x[1]) != float16.Fromfloat32(v[1]).Float32() {
		t.Errorf("fp32 of fp16 of %v is %v (%v)", v[1], x[1], err)
	}
}

func TestCastConstFaults(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	short := &truncated{literalOf(mil.Float32, []float32{1, 2, 3}), 10}
	long := &mil.Literal{T: mil.T(mil.Float32, 2), Data: make([]byte, 12)}
	for _, c := range []struct {
		name string
		c    *CastConst
		want string
	}{
		{"NaN", &CastConst{Src: literalOf(mil.BFloat16, []float32{1, nan}), To: mil.Float32, Factor: 1, Name: "w"}, `const "w": element 1 is NaN`},
		{"infinite", &CastConst{Src: literalOf(mil.Float32, []float32{inf}), To: mil.Float16, Factor: 1, Name: "w"}, `element 0 is infinite`},
		{"fp16 range", &CastConst{Src: literalOf(mil.Float32, []float32{65504, -65505}), To: mil.Float16, Factor: 1, Name: "w"}, `element 1 is -65505, beyond fp16's 65504`},
		{"range after scaling", &CastConst{Src: literalOf(mil.Float32, []float32{40000}), To: mil.Float16, Factor: 2, Name: "w"}, `element 0 is 80000`},
		{"fp32 range", &CastConst{Src: literalOf(mil.Float64, []float32{3e38}), To: mil.Float32, Factor: 4, Name: "w"}, "infinite"},
		{"short source", &CastConst{Src: short, To: mil.Float16, Factor: 1, Name: "w"}, "gives 2 elements"},
		{"long source", &CastConst{Src: long, To: mil.Float16, Factor: 1, Name: "w"}, "gives 3 elements"},
		{"integer source", &CastConst{Src: mil.NewInts(mil.Int32, []int{1}, 1), To: mil.Float16, Factor: 1, Name: "w"}, "no conversion from int32"},
	} {
		if _, err := c.c.WriteTo(io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	ok := &CastConst{Src: literalOf(mil.Float32, []float32{65504, -65504}), To: mil.Float16, Factor: 1}
	if got := bytesOf(t, ok); !bytes.Equal(got, []byte{0xff, 0x7b, 0xff, 0xfb}) {
		t.Errorf("the largest fp16 values give %x", got)
	}
	if _, err := ok.WriteTo(iotest.TruncateWriter(failing{}, 0)); err != nil {
		t.Errorf("truncating writer: %v", err)
	}
	if _, err := ok.WriteTo(failing{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("the error of the target is lost: %v", err)
	}
	for _, f := range []float64{0, 3, -2, math.Inf(1), math.NaN(), 1e-40} {
		if _, err := Scale("w", literalOf(mil.Float32, []float32{1}), f); err == nil {
			t.Errorf("scaling by %v was accepted", f)
		}
	}
	if _, err := Scale("w", mil.NewInts(mil.Int32, nil, 1), 2); err == nil {
		t.Error("an integer was scaled")
	}
	if _, err := Cast("w", mil.NewInts(mil.Int32, nil, 1), mil.Float16); err == nil {
		t.Error("an integer was cast")
	}
}

// truncated stops its source after n bytes.
type truncated struct {
	mil.Const
	n int
}

func (c *truncated) WriteTo(w io.Writer) (int64, error) {
	b, err := mil.ConstBytes(c.Const)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(b[:c.n])
	return int64(n), err
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// A constant holds no copy of its source: only the fixed buffer is allocated.
func TestCastConstMemory(t *testing.T) {
	zeros := &zeroConst{mil.T(mil.BFloat16, 16<<20)}
	c := &CastConst{Src: zeros, To: mil.Float16, Factor: 1, Name: "w"}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if n, err := c.WriteTo(io.Discard); err != nil || n != 32<<20 {
		t.Fatal(n, err)
	}
	runtime.ReadMemStats(&after)
	if d := after.TotalAlloc - before.TotalAlloc; d > 1<<20 {
		t.Errorf("writing 32 MiB allocates %d bytes, want at most 1 MiB", d)
	}
}

// zeroConst streams zeros.
type zeroConst struct{ t mil.TensorType }

func (z *zeroConst) Type() mil.TensorType { return z.t }

func (z *zeroConst) WriteTo(w io.Writer) (int64, error) {
	var n int64
	buf := make([]byte, 32<<10)
	for n < z.t.NumBytes() {
		m, err := w.Write(buf[:min(int64(len(buf)), z.t.NumBytes()-n)])
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
