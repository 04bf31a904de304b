package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/internal/decompress"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

// TestPalettesNotWorse compares two compressed forms of a bundle, smelt's and
// coremltools' (as bench/compress.py makes it): no weight may have a larger squared
// error in smelt's. SMELT_PALETTES has the directories PLAIN:THEIRS:OURS.
func TestPalettesNotWorse(t *testing.T) {
	dirs := strings.Split(os.Getenv("SMELT_PALETTES"), ":")
	if len(dirs) != 3 {
		t.Skip("SMELT_PALETTES is not PLAIN:THEIRS:OURS")
	}
	files, err := filepath.Glob(filepath.Join(dirs[0], "*.mlpackage"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no packages, %v", dirs[0], err)
	}
	count, better := 0, 0
	for _, file := range files {
		var weights [3]map[string]*decompress.Tensor
		for i, dir := range dirs {
			weights[i] = decodeWeights(t, filepath.Join(dir, filepath.Base(file)))
		}
		for name, theirs := range weights[1] {
			plain, ours := weights[0][name], weights[2][name]
			if plain == nil || ours == nil || plain.Len() != theirs.Len() || ours.Len() != theirs.Len() {
				t.Errorf("%s: %s is not in all three", filepath.Base(file), name)
				continue
			}
			a, b := squaredError(plain, theirs), squaredError(plain, ours)
			count++
			if b < a {
				better++
			}
			// Entries are rounded to fp16, which may help or harm by a little.
			if b > a*(1+1e-5) {
				t.Errorf("%s: %s: squared error %g, coremltools' %g (%+.4f %%)", filepath.Base(file), name, b, a, 100*(b/a-1))
			}
		}
	}
	t.Logf("%d weights, %d better", count, better)
}

// TestIntegersEqual compares two bundles of integer weights, smelt's and
// coremltools': they decode to the same numbers. SMELT_INTEGERS has the
// directories THEIRS:OURS.
func TestIntegersEqual(t *testing.T) {
	dirs := strings.Split(os.Getenv("SMELT_INTEGERS"), ":")
	if len(dirs) != 2 {
		t.Skip("SMELT_INTEGERS is not THEIRS:OURS")
	}
	files, err := filepath.Glob(filepath.Join(dirs[0], "*.mlpackage"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no packages, %v", dirs[0], err)
	}
	count := 0
	for _, file := range files {
		ours := decodeWeights(t, filepath.Join(dirs[1], filepath.Base(file)))
		for name, a := range decodeWeights(t, file) {
			b := ours[name]
			if b == nil || b.Len() != a.Len() {
				t.Errorf("%s: %s is not in both, or of another size", filepath.Base(file), name)
				continue
			}
			count++
			if e := squaredError(a, b); e != 0 {
				t.Errorf("%s: %s: squared difference %g", filepath.Base(file), name, e)
			}
		}
	}
	if count == 0 {
		t.Error("no weight was compared")
	}
	t.Logf("%d weights", count)
}

// decodeWeights are the weights of linear ops of a package's first function, by
// the name of the op.
func decodeWeights(t *testing.T, path string) map[string]*decompress.Tensor {
	t.Helper()
	p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	out := map[string]*decompress.Tensor{}
	p.Program.Functions[p.Program.Names()[0]].Body.Walk(func(op *mil.Op) {
		if op.Kind != "linear" {
			return
		}
		d, err := decompress.Of(op.In("weight"), decompress.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d.Len() > 1<<11 {
			out[op.Name] = d
		}
	})
	return out
}

func squaredError(a, b *decompress.Tensor) (sum float64) {
	const piece = 1 << 16
	x, y := make([]float32, piece), make([]float32, piece)
	for at := 0; at < a.Len(); at += piece {
		n := min(piece, a.Len()-at)
		a.Elements(x[:n], at)
		b.Elements(y[:n], at)
		for i := range n {
			d := float64(x[i]) - float64(y[i])
			sum += d * d
		}
	}
	return sum
}
