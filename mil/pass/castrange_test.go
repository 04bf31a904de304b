package pass

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
)

// widened is fp32 over a narrower constant, as weights of checkpoints are.
type widened struct{ narrow mil.Const }

func (w *widened) Type() mil.TensorType      { return mil.T(mil.Float32, w.narrow.Type().Shape...) }
func (w *widened) Stored() (mil.Const, bool) { return w.narrow, true }

func (w *widened) Ranges() (mil.ReadRange, bool) {
	b, err := mil.ConstBytes(w.narrow)
	size := w.narrow.Type().DType.Bits() / 8
	return func(dst []byte, off int64) error {
		f := make([]float32, len(dst)/4)
		decode(f, b[int(off)/4*size:][:len(f)*size], w.narrow.Type().DType)
		for i, x := range f {
			if x-x != 0 {
				return fmt.Errorf("the source checks: element %d is %v", int(off)/4+i, x)
			}
		}
		encode(dst, f, mil.Float32)
		return err
	}, true
}

func (w *widened) WriteTo(out io.Writer) (int64, error) {
	b := make([]byte, w.Type().NumBytes())
	read, _ := w.Ranges()
	if err := read(b, 0); err != nil {
		return 0, err
	}
	n, err := out.Write(b)
	return int64(n), err
}

// Parts of a cast constant are parts of what it writes, whether its source is
// read in its own type, in the one it is stored in, or streamed.
func TestRangesAreParts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		from := rapid.SampledFrom([]mil.DType{mil.Float16, mil.BFloat16, mil.Float32, mil.Float64}).Draw(rt, "from")
		to := rapid.SampledFrom([]mil.DType{mil.Float16, mil.Float32}).Draw(rt, "to")
		v := rapid.SliceOfN(rapid.Float32Range(-4000, 4000), 1, 100).Draw(rt, "v")
		factor := float32(math.Ldexp(1, rapid.IntRange(-12, 3).Draw(rt, "exp")))
		lit := literalOf(from, v)
		want := bytesOf(t, &CastConst{Src: &choppy{Const: lit, sizes: []int{64}}, To: to, Factor: factor})
		srcs := []mil.Const{lit}
		if from != mil.Float64 {
			srcs = append(srcs, &widened{lit})
		}
		for _, src := range srcs {
			c := &CastConst{Src: src, To: to, Factor: factor}
			if got := bytesOf(t, c); !bytes.Equal(got, want) {
				rt.Fatalf("%T: %x, streamed %x", src, got, want)
			}
			size := to.Bits() / 8
			lo := rapid.IntRange(0, len(v)).Draw(rt, "lo")
			hi := rapid.IntRange(lo, len(v)).Draw(rt, "hi")
			shift := rapid.IntRange(0, 3).Draw(rt, "misalignment")
			dst := make([]byte, shift+(hi-lo)*size)[shift:]
			read, ok := c.Ranges()
			if !ok {
				rt.Fatalf("%T gives no ranges", src)
			}
			if err := read(dst, int64(lo*size)); err != nil {
				rt.Fatal(err)
			}
			if !bytes.Equal(dst, want[lo*size:hi*size]) {
				rt.Fatalf("%T [%d,%d): %x, want %x", src, lo, hi, dst, want[lo*size:hi*size])
			}
		}
	})
}

// A constant of many pieces, read by several goroutines.
func TestRangesTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	v := make([]float32, 3*pieceBytes/2+77)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	for _, from := range []mil.DType{mil.BFloat16, mil.Float16, mil.Float32} {
		lit := literalOf(from, v)
		want := bytesOf(t, &CastConst{Src: &choppy{Const: lit, sizes: []int{1 << 16}}, To: mil.Float16, Factor: 0.5})
		read, ok := (&CastConst{Src: &widened{lit}, To: mil.Float16, Factor: 0.5}).Ranges()
		if !ok {
			t.Fatal("no ranges")
		}
		got := make([]byte, len(want))
		var wg sync.WaitGroup
		const part = 2 * 123_456
		for off := 0; off < len(got); off += part {
			wg.Go(func() {
				if err := read(got[off:min(off+part, len(got))], int64(off)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if !bytes.Equal(got, want) {
			t.Errorf("%v: other bytes", from)
		}
	}
}

func TestRangeFaults(t *testing.T) {
	nan := float32(math.NaN())
	v := make([]float32, 1<<17)
	v[100_000] = 1e6
	for _, c := range []struct {
		name string
		v    []float32
		want string
	}{
		{"range", v, `const "w": element 100000 is 1e+06, beyond fp16's 65504`},
		{"the source's own check", []float32{1, 2, nan}, "the source checks: element 2 is NaN"},
	} {
		cc := &CastConst{Src: &widened{literalOf(mil.BFloat16, c.v)}, To: mil.Float16, Factor: 1, Name: "w"}
		want := c.want
		if c.name == "range" {
			want = strings.Replace(want, "1e+06", "999424", 1) // the bfloat16 below
		}
		if _, err := cc.WriteTo(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", c.name, err, want)
		}
	}
	if _, ok := (&CastConst{Src: &choppy{Const: literalOf(mil.Float32, v)}, To: mil.Float16}).Ranges(); ok {
		t.Error("ranges of a source that has none")
	}
	if _, ok := (&CastConst{Src: mil.NewInts(mil.Int32, []int{1}, 1), To: mil.Float16}).Ranges(); ok {
		t.Error("ranges of integers")
	}
}

// Constants that are equal up to one byte, wherever it is, are told apart, and
// equal ones found whether they give ranges or not.
func TestEqualsLong(t *testing.T) {
	v := make([]float32, pieceBytes)
	for i := range v {
		v[i] = float32(i % 1000)
	}
	variant := func(at int) mil.Const {
		w := append([]float32(nil), v...)
		if at >= 0 {
			w[at]++
		}
		return literalOf(mil.Float32, w)
	}
	cs := []mil.Const{variant(-1), variant(5000), variant(len(v) - 1), variant(len(v) / 2), variant(-1), variant(len(v) / 2),
		&choppy{Const: variant(5000), sizes: []int{1 << 16}}, &choppy{Const: variant(7000), sizes: []int{1 << 16}},
		&CastConst{Src: variant(-1), To: mil.Float32, Factor: 1}}
	got, err := Equals(cs)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 1, 2, 3, 0, 3, 1, 7, 0}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("classes %v, want %v", got, want)
	}
}

func BenchmarkCastBF16(b *testing.B) {
	lit := &mil.Literal{T: mil.T(mil.BFloat16, 1<<24), Data: make([]byte, 2<<24)}
	c := &CastConst{Src: lit, To: mil.Float16, Factor: 1}
	b.SetBytes(2 << 24)
	for b.Loop() {
		if _, err := c.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
