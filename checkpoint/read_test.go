package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func mustRaw(t testing.TB, name string, dt DType, shape []int, data []byte) Tensor {
	t.Helper()
	x, err := NewRaw(name, dt, shape, data)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// throughFile writes tensors, opens the file and returns them by name.
// A first U8 tensor of pad bytes shifts the data of all narrower ones.
func throughFile(t testing.TB, tensors ...Tensor) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.safetensors")
	if err := WriteFile(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// Bit patterns and values from the formats' specifications.
var readCases = []struct {
	dtype DType
	raw   []byte
	want  []float32
}{
	{Bool, []byte{0, 1, 2}, []float32{0, 1, 1}},
	{U8, []byte{0, 127, 255}, []float32{0, 127, 255}},
	{I8, []byte{0x80, 0xff, 0x7f}, []float32{-128, -1, 127}},
	{U16, []byte{0xff, 0xff, 1, 0}, []float32{65535, 1}},
	{I16, []byte{0, 0x80, 0xff, 0xff}, []float32{-32768, -1}},
	{U32, []byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 1}, []float32{0x1p32, 0x1p24}},
	{I32, []byte{0, 0, 0, 0x80, 3, 0, 0, 1}, []float32{-0x1p31, 0x1p24 + 4}},
	{U64, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []float32{0x1p64}},
	{I64, []byte{0, 0, 0, 0, 0, 0, 0, 0x80, 5, 0, 0, 0, 0, 0, 0, 0}, []float32{-0x1p63, 5}},
	{F32, []byte{0, 0, 0x80, 0x3f, 0, 0, 0x80, 0xff, 1, 0, 0, 0}, []float32{1, -inf, 0x1p-149}},
	{F64, []byte{0, 0, 0, 0x10, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, []float32{1, inf}},
	{F16, []byte{0, 0x3c, 1, 0, 0xff, 0x7b, 0, 0xfc, 1, 0x7e}, []float32{1, 0x1p-24, 65504, -inf, nan}},
	{BF16, []byte{0x80, 0x3f, 0x80, 0xff, 1, 0, 0x49, 0xc0}, []float32{1, -inf, 0x1p-133, -3.140625}},
	{F8E4M3, []byte{0x00, 0x01, 0x07, 0x08, 0x38, 0x7e, 0x7f, 0xfe, 0xff, 0xb8}, []float32{0, 0x1p-9, 7 * 0x1p-9, 0x1p-6, 1, 448, nan, -448, nan, -1}},
	{F8E5M2, []byte{0x00, 0x01, 0x04, 0x3c, 0x7b, 0x7c, 0x7d, 0xfc, 0xbc}, []float32{0, 0x1p-16, 0x1p-14, 1, 57344, inf, nan, -inf, -1}},
	{F8E8M0, []byte{0, 127, 128, 254, 255}, []float32{0x1p-127, 1, 2, 0x1p127, nan}},
	{F8E4M3FNUZ, []byte{0x01, 0x08, 0x40, 0x7f, 0x80, 0xc0}, []float32{0x1p-10, 0x1p-7, 1, 240, nan, -1}},
	{F8E5M2FNUZ, []byte{0x01, 0x04, 0x40, 0x7f, 0x80, 0xc0}, []float32{0x1p-17, 0x1p-15, 1, 57344, nan, -1}},
	{F4, []byte{0x10, 0x32, 0x54, 0x76, 0xf9}, []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -6}},
}

func TestReadFloat32(t *testing.T) {
	for _, tc := range readCases {
		t.Run(tc.dtype.String(), func(t *testing.T) {
			n := len(tc.want)
			for name, x := range map[string]Tensor{
				"memory":     mustRaw(t, "x", tc.dtype, []int{n}, tc.raw),
				"misaligned": mustRaw(t, "x", tc.dtype, []int{n}, append(make([]byte, 1), tc.raw...)[1:]),
				"file":       get(t, throughFile(t, mustRaw(t, "x", tc.dtype, []int{n}, tc.raw)), "x"),
			} {
				for from := range n {
					for to := from; to <= n; to++ {
						got := make([]float32, to-from)
						if err := x.ReadFloat32(got, from); err != nil {
							t.Fatal(err)
						}
						if d := cmp.Diff(tc.want[from:to], got, cmpopts.EquateNaNs()); d != "" {
							t.Fatalf("%s [%d, %d): %s", name, from, to, d)
						}
					}
				}
				for _, r := range [][2]int{{-1, 1}, {0, n + 1}, {n, 1}, {n + 1, 0}, {math.MaxInt, 1}} {
					if err := x.ReadFloat32(make([]float32, r[1]), r[0]); err == nil {
						t.Errorf("%s: %d elements from %d: no error", name, r[1], r[0])
					}
				}
			}
		})
	}
}

func get(t testing.TB, s Source, name string) Tensor {
	t.Helper()
	x, ok := s.Tensor(name)
	if !ok {
		t.Fatalf("tensor %q not found in %v", name, s.Names())
	}
	return x
}

func TestReadUnreadable(t *testing.T) {
	for _, dt := range []DType{F6E2M3, F6E3M2, C64} {
		x := mustRaw(t, "x", dt, []int{4}, make([]byte, 4*dt.Bits()/8))
		if err := x.ReadFloat32(make([]float32, 1), 0); err == nil || !strings.Contains(err.Error(), dt.String()) {
			t.Errorf("%v: error %v", dt, err)
		}
		if b, err := ReadBytes(x); err != nil || len(b) != 4*dt.Bits()/8 {
			t.Errorf("%v: %d raw bytes, error %v", dt, len(b), err)
		}
	}
}

// TestReadAcrossChunks reads ranges around the streaming unit.
func TestReadAcrossChunks(t *testing.T) {
	const n = chunkBytes + 3
	want := make([]float32, n)
	nibbles := make([]byte, (n+1)/2)
	for i := range want {
		want[i] = float32(i%8191) - 4000
	}
	for i := range nibbles {
		nibbles[i] = byte(i * 37)
	}
	f := throughFile(t,
		NewFloat32("f32", []int{n}, want),
		AsType(NewFloat32("bf16", []int{n}, want), BF16),
		mustRaw(t, "f4", F4, []int{n + 1}, nibbles))
	for _, name := range f.Names() {
		x := get(t, f, name)
		all, err := ReadAll(x)
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range []int{0, 1, chunkBytes/4 - 1, chunkBytes / 4, chunkBytes/2 + 1, n - 2} {
			got := make([]float32, min(chunkBytes/2+5, n-off))
			if err := x.ReadFloat32(got, off); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(all[off:off+len(got)], got) {
				t.Errorf("%s: elements from %d differ from those of a whole read", name, off)
			}
		}
	}
	got, err := ReadAll(get(t, f, "f32"))
	if err != nil || !slices.Equal(want, got) {
		t.Errorf("f32 changed on the way (error %v)", err)
	}
}

func TestReadInts(t *testing.T) {
	le := binary.LittleEndian
	for _, tc := range []struct {
		dtype DType
		raw   []byte
		want  []int64
	}{
		{Bool, []byte{0, 1}, []int64{0, 1}},
		{U8, []byte{255}, []int64{255}},
		{I8, []byte{255}, []int64{-1}},
		{U16, []byte{255, 255}, []int64{65535}},
		{I16, []byte{255, 255}, []int64{-1}},
		{U32, []byte{255, 255, 255, 255}, []int64{math.MaxUint32}},
		{I32, []byte{255, 255, 255, 255}, []int64{-1}},
		{I64, le.AppendUint64(nil, 1<<63), []int64{math.MinInt64}},
		{U64, le.AppendUint64(nil, math.MaxInt64), []int64{math.MaxInt64}},
	} {
		x := mustRaw(t, "x", tc.dtype, []int{len(tc.want)}, tc.raw)
		for _, x := range []Tensor{x, foreign{x}, Rename(foreign{x}, "y"), get(t, throughFile(t, x), "x")} {
			got, err := ReadInts(x)
			if d := cmp.Diff(tc.want, got); err != nil || d != "" {
				t.Errorf("%v: error %v, %s", tc.dtype, err, d)
			}
		}
	}
	if _, err := ReadInts(mustRaw(t, "x", U64, []int{1}, le.AppendUint64(nil, 1<<63))); err == nil {
		t.Error("a U64 beyond int64 is read")
	}
	if _, err := ReadInts(NewFloat32("x", []int{1}, []float32{1})); err == nil {
		t.Error("F32 is read as integers")
	}
}

// foreign hides all but the Tensor interface.
type foreign struct{ Tensor }

func TestMemoryTensors(t *testing.T) {
	for _, x := range []Tensor{
		NewFloat32("bad", []int{2, 3}, make([]float32, 5)),
		NewInt32("bad", []int{-1}, nil),
		NewInt64("bad", []int{math.MaxInt, 3}, nil),
		Rename(NewInt64("was", []int{2}, nil), "bad"),
		AsType(NewFloat32("bad", []int{2}, nil), F16),
		AsType(NewFloat32("bad", []int{1}, []float32{1}), F8E4M3),
	} {
		if err := x.ReadFloat32(nil, 0); err == nil {
			t.Errorf("%v %v: ReadFloat32 gives no error", x.DType(), x.Shape())
		}
		if _, err := x.WriteTo(io.Discard); err == nil {
			t.Errorf("%v %v: WriteTo gives no error", x.DType(), x.Shape())
		}
		path := filepath.Join(t.TempDir(), "f.safetensors")
		if err := WriteFile(path, []Tensor{x}, nil); err == nil {
			t.Errorf("%v %v: WriteFile gives no error", x.DType(), x.Shape())
		}
	}
	if _, err := NewRaw("x", F32, []int{2}, make([]byte, 7)); err == nil {
		t.Error("NewRaw accepts 7 bytes for two F32")
	}
	if _, err := NewRaw("x", 0, []int{0}, nil); err == nil {
		t.Error("NewRaw accepts an invalid dtype")
	}
	x := NewInt64("i", []int{2, 1}, []int64{-1, 1 << 40})
	b, ok := Raw(x)
	if want := []byte{255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 1, 0, 0}; !ok || !bytes.Equal(b, want) {
		t.Errorf("raw bytes %v", b)
	}
	if s := NewFloat32("s", nil, []float32{3}); NumElements(s) != 1 || s.Shape() == nil {
		t.Errorf("a scalar has %d elements, shape %v", NumElements(s), s.Shape())
	}
}

func TestRawOfFile(t *testing.T) {
	want := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 5000)
	f := throughFile(t, mustRaw(t, "x", U8, []int{len(want)}, want), NewFloat32("e", []int{0}, nil))
	x := get(t, f, "x")
	b, ok := Raw(x)
	if !ok {
		t.Skip("files cannot be mapped here")
	}
	for range 2 {
		if err := Guard(func() error {
			if !bytes.Equal(b, want) {
				return errors.New("bytes differ")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		Release(x)
	}
	if r, ok := Raw(Rename(x, "y")); !ok || &r[0] != &b[0] {
		t.Error("renaming loses the mapping")
	}
	if e, ok := Raw(get(t, f, "e")); !ok || len(e) != 0 {
		t.Errorf("an empty tensor has raw bytes %v, %v", e, ok)
	}
}

func TestClosed(t *testing.T) {
	f := throughFile(t, NewFloat32("x", []int{2}, []float32{1, 2}))
	x := get(t, f, "x")
	Raw(x)
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.ReadFloat32(make([]float32, 2), 0); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("read after Close: error %v", err)
	}
	if _, ok := Raw(x); ok {
		t.Error("Raw after Close")
	}
	Release(x)
}

func TestTruncatedWhileOpen(t *testing.T) {
	page := os.Getpagesize()
	n := 4 * page
	f := throughFile(t, mustRaw(t, "x", U8, []int{n}, bytes.Repeat([]byte{7}, n)))
	x := get(t, f, "x")
	raw, mapped := Raw(x)
	if err := os.Truncate(f.Path(), int64(page)); err != nil {
		t.Skip(err)
	}
	_, err := ReadAll(x)
	if err == nil || !strings.Contains(err.Error(), `t.safetensors: tensor "x": data ends at byte`) {
		t.Errorf("ReadAll: error %v", err)
	}
	if _, err := x.WriteTo(io.Discard); err == nil {
		t.Error("WriteTo gives no error")
	}
	if err := WriteFile(filepath.Join(t.TempDir(), "copy"), []Tensor{x}, nil); err == nil {
		t.Error("WriteFile gives no error")
	}
	if !mapped {
		return
	}
	sum := 0
	err = Guard(func() error {
		for _, b := range raw {
			sum += int(b)
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("Guard: error %v", err)
	}
	if sum == 0 || sum == 7*n {
		t.Errorf("sum of the bytes before the fault is %d", sum)
	}
}

func TestGuardPassesPanicsOn(t *testing.T) {
	for _, bug := range []func() error{
		func() error { panic("bug") },
		func() error { var p *int; *p = 1; return nil },
		func() error { s := []int{}; _ = s[len(s)]; return nil },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil {
					t.Error("Guard swallowed a panic")
				} else if _, isString := r.(string); !isString {
					if _, ok := r.(runtime.Error); !ok {
						t.Errorf("Guard changed the panic to %v", r)
					}
				}
			}()
			_ = Guard(bug)
		}()
	}
	sentinel := errors.New("sentinel")
	if err := Guard(func() error { return sentinel }); err != sentinel {
		t.Errorf("Guard returns %v", err)
	}
}

func TestConcurrentReads(t *testing.T) {
	want := make([]float32, 200_000)
	for i := range want {
		want[i] = float32(i)
	}
	f := throughFile(t, NewFloat32("x", []int{len(want)}, want))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			x, _ := f.Tensor("x")
			if i%2 == 0 {
				Raw(x)
				Release(x)
			}
			got, err := ReadAll(x)
			if err != nil || !slices.Equal(want, got) {
				t.Errorf("reader %d: wrong data (error %v)", i, err)
			}
		})
	}
	wg.Wait()
}
