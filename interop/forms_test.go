package interop

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/smelt-go/smelt/internal/decompress"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/littleendian"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mil/pass"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/runtime"
)

// weightForms are the Core ML formats of weights [64, 96].
func weightForms() []quant.Format {
	var out []quant.Format
	for _, bits := range []int{1, 2, 3, 4, 6, 8} {
		for _, group := range []int{0, 1, 8, 32} {
			out = append(out, quant.Format{Codec: "palette", Bits: bits, GroupSize: group})
		}
		out = append(out, quant.Format{Codec: "palette", Bits: bits, GroupSize: 16, Table: "int8"},
			quant.Format{Codec: "palette", Bits: bits, ChannelScale: true},
			quant.Format{Codec: "palette", Bits: bits, Tables: "uniform", GroupSize: 8},
			quant.Format{Codec: "palette", Bits: bits, Vector: 2, GroupSize: 32},
			quant.Format{Codec: "palette", Bits: bits, Vector: 4},
			quant.Format{Codec: "palette", Bits: bits, GroupSize: 16, Sparsity: 0.37},
			quant.Format{Codec: "palette", Bits: bits, Pattern: "1:4"})
	}
	for _, bits := range []int{4, 8} {
		for _, g := range []quant.Format{{Granularity: "tensor"}, {Granularity: "channel"}, {Granularity: "block", GroupSize: 32}} {
			for i := range 4 {
				for _, sparsity := range []float64{0, 0.41} {
					f := g
					f.Codec, f.Bits, f.Unsigned, f.Asymmetric, f.Sparsity = "linear", bits, i&1 > 0, i&2 > 0, sparsity
					out = append(out, f)
				}
			}
		}
		out = append(out, quant.Format{Codec: "linear", Bits: bits, Granularity: "channel", Pattern: "2:4"})
	}
	return append(out,
		quant.Format{Codec: "palette", Bits: 4, Vector: 2, Table: "int8"},
		quant.Format{Codec: "palette", Bits: 4, Vector: 2, ChannelScale: true},
		quant.Format{Codec: "palette", Bits: 4, Sparsity: 0.5, Table: "int8"},
		quant.Format{Codec: "palette", Bits: 4, ChannelScale: true, Table: "int8"},
		quant.Format{Codec: "sparse", Sparsity: 0.7},
		quant.Format{Codec: "sparse", Pattern: "2:4"})
}

// namedWeight is a constant that comes from a tensor of a checkpoint.
type namedWeight struct {
	mil.Const
	name string
}

func (n namedWeight) Name() string { return n.name }

// oneLinear writes a package whose only op multiplies by a compressed weight.
func oneLinear(t *testing.T, path string, rows, cols int, w []float64, f quant.Format) {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, 1, cols))
	weight := b.Const("w", namedWeight{mil.NewFloats(mil.Float16, []int{rows, cols}, w...), "up_proj.weight"})
	y := b.Op("linear", "y", mil.Args{"x": x, "weight": weight, "bias": mil.NewFloats(mil.Float16, []int{rows}, make([]float64, rows)...)})
	b.Output("y_out", b.Op("identity", "y_out", mil.Args{"x": y}))
	fn, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	p := mil.NewProgram()
	p.Functions["main"], p.Default = fn, "main"
	list, err := pass.Compress(p, func(string) (quant.Format, bool) { return f, true })
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %d weights, %v", f.Describe(), len(list), err)
	}
	if _, err := mlpackage.Write(context.Background(), path, p, mlpackage.WriteOptions{}); err != nil {
		t.Fatalf("%s: %v", f.Describe(), err)
	}
}

// decodedLinear reads the package back: the weight as smelt decodes it, and what
// the runtime makes of an input.
func decodedLinear(t *testing.T, path string, x []float32) (w, y []float32) {
	t.Helper()
	p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, op := range p.Program.Functions["main"].Body.Ops {
		if op.Kind == "linear" {
			d, err := decompress.Of(op.In("weight"), decompress.Options{})
			if err != nil {
				t.Fatal(err)
			}
			w = d.All()
		}
	}
	prog, err := runtime.Load(p.Program, runtime.Options{Mode: runtime.Typed})
	if err != nil {
		t.Fatal(err)
	}
	in := runtime.NewTensor(mil.Float16, 1, len(x))
	copy(in.F, x)
	out, err := prog.New().Run("main", map[string]*runtime.Tensor{"x": in})
	if err != nil {
		t.Fatal(err)
	}
	return w, out["y_out"].F
}

// TestForms: coremltools decompresses every Core ML format to the numbers that
// smelt decodes, and the runtime multiplies by those.
func TestForms(t *testing.T) {
	py := python(t)
	const rows, cols = 64, 96
	rng := rand.New(rand.NewPCG(7, 8))
	w := make([]float64, rows*cols)
	for i := range w {
		w[i] = float64(half.ToF32(half.FromF32(float32(rng.NormFloat64() / 8))))
	}
	x := make([]float32, cols)
	for i := range x {
		x[i] = half.ToF32(half.FromF32(float32(rng.NormFloat64())))
	}
	dir := t.TempDir()
	formats := weightForms()
	decoded := make([][]float32, len(formats))
	for i, f := range formats {
		path := filepath.Join(dir, fmt.Sprintf("%03d.mlpackage", i))
		oneLinear(t, path, rows, cols, w, f)
		var y []float32
		decoded[i], y = decodedLinear(t, path, x)
		for r := range rows {
			var want float64
			for j := range cols {
				want += float64(x[j]) * float64(decoded[i][r*cols+j])
			}
			if d := math.Abs(float64(y[r]) - want); d > 2e-3*math.Max(1, math.Abs(want)) {
				t.Errorf("%s: output %d is %g, want %g", f.Describe(), r, y[r], want)
				break
			}
		}
	}
	if out, err := exec.Command(py, "decompress_packages.py", dir).CombinedOutput(); err != nil {
		t.Fatalf("decompress_packages.py: %v\n%s", err, tail(out, 2000))
	}
	for i, f := range formats {
		raw, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%03d.f16", i)))
		if err != nil {
			t.Fatal(err)
		}
		theirs, ok := littleendian.View[uint16](raw)
		if !ok || len(theirs) != rows*cols {
			t.Fatalf("%s: %d bytes", f.Describe(), len(raw))
		}
		different := 0
		for j, b := range theirs {
			if half.ToF32(b) != decoded[i][j] {
				if different == 0 {
					t.Logf("%s: element %d is %g for coremltools, %g here", f.Describe(), j, half.ToF32(b), decoded[i][j])
				}
				different++
			}
		}
		if different > 0 {
			t.Errorf("%s: %d of %d elements differ", f.Describe(), different, len(theirs))
		}
	}
	t.Logf("%d formats", len(formats))
}
