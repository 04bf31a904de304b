package quant

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
)

// goldenFiles are recordings of mx.quantize on the CPU: the committed one and,
// with SMELT_GOLDENS, a larger one.
func goldenFiles(t *testing.T) []*checkpoint.File {
	t.Helper()
	paths := []string{"testdata/mlx.safetensors"}
	if dir := os.Getenv("SMELT_GOLDENS"); dir != "" {
		paths = append(paths, filepath.Join(dir, "mlx-affine.safetensors"))
	}
	var files []*checkpoint.File
	for _, p := range paths {
		f, err := checkpoint.OpenFile(p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return files
}

func rawOf(t *testing.T, f *checkpoint.File, name string) []byte {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("%s has no tensor %q", f.Path(), name)
	}
	b, err := checkpoint.ReadBytes(x)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// encodeAll runs Encode and collects the parts.
func encodeAll(t testing.TB, c Codec, x checkpoint.Tensor, o Options) (*Encoded, [][]byte) {
	t.Helper()
	e, err := Encode(c, x, "m", o)
	if err != nil {
		t.Fatal(err)
	}
	var parts [][]byte
	for _, p := range e.Parts {
		var b bytes.Buffer
		if _, err := p.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if int64(b.Len()) != checkpoint.NumBytes(p) {
			t.Fatalf("%s: part %s has %d bytes, its type says %d", c, p.Name(), b.Len(), checkpoint.NumBytes(p))
		}
		parts = append(parts, b.Bytes())
	}
	return e, parts
}

// parseFormat reads b4.g64 and mxfp4.
func parseFormat(t *testing.T, s string) Codec {
	t.Helper()
	var bits, group int
	if n, _ := fmt.Sscanf(s, "b%d.g%d", &bits, &group); n == 2 {
		c, err := NewAffine(bits, group, RoundCPU)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, err := NewFloat(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMLXBits(t *testing.T) {
	for _, f := range goldenFiles(t) {
		vectors := 0
		for _, name := range f.Names() {
			stem, ok := strings.CutSuffix(name, ".weight")
			if !ok {
				continue
			}
			vectors++
			dtype, format, _ := strings.Cut(stem, ".")
			w, _ := f.Tensor(dtype + ".w")
			c := parseFormat(t, format)
			_, got := encodeAll(t, c, w, Options{Workers: 3})
			parts, _ := c.Parts(w.DType(), w.Shape())
			for i, p := range parts {
				want := rawOf(t, f, stem+"."+p.Suffix)
				if !bytes.Equal(got[i], want) {
					t.Errorf("%s: %s: %s differs at byte %d of %d", f.Path(), stem, p.Suffix, diff(got[i], want), len(want))
				}
			}
			if _, ok := f.Tensor(stem + ".dequantized"); ok {
				d, _ := f.Tensor(stem + ".dequantized")
				y, err := checkpoint.ReadAll(d)
				if err != nil {
					t.Fatal(err)
				}
				x := make([]float32, checkpoint.NumElements(w))
				c.Decode(x, got, w.Shape()[1], w.DType())
				for i, v := range x {
					// An infinite scale times code 0 is a NaN of either sign.
					if math.Float32bits(v) != math.Float32bits(y[i]) && (v == v || y[i] == y[i]) {
						t.Errorf("%s: %s: element %d decodes to %v, want %v", f.Path(), stem, i, v, y[i])
						break
					}
				}
			}
		}
		if vectors < 30 {
			t.Errorf("%s: only %d vectors", f.Path(), vectors)
		}
	}
}

// diff is the first position where a and b differ.
func diff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
