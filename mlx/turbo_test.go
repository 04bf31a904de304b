package mlx_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fidelity"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/quant"
)

// TestTurbo: directories of codec turboquant are written with a warning, read
// back near the source, and exported in plain bfloat16.
func TestTurbo(t *testing.T) {
	src := fixture(t, "llama-tied")
	for _, group := range []int{0, 16} {
		out := filepath.Join(t.TempDir(), "turbo")
		recipe := &quant.Recipe{Target: quant.TargetMLX, Default: quant.Format{Codec: "turboquant", Bits: 6, GroupSize: group}}
		rep, err := mlx.Quantize(t.Context(), src, out, mlx.Options{Recipe: recipe})
		if err != nil {
			t.Fatal(err)
		}
		if len(rep.Warnings) != 1 || !strings.Contains(rep.Warnings[0], "smelt alone reads") {
			t.Errorf("warnings %q", rep.Warnings)
		}
		plain := filepath.Join(t.TempDir(), "plain")
		if err := mlx.Dequantize(t.Context(), out, plain, false); err != nil {
			t.Fatal(err)
		}
		exported, err := checkpoint.Open(plain)
		if err != nil {
			t.Fatal(err)
		}
		defer exported.Close()
		original, err := checkpoint.Open(src)
		if err != nil {
			t.Fatal(err)
		}
		defer original.Close()
		d, err := mlx.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if len(d.Modules) != 36 {
			t.Errorf("%d quantized modules, want 36", len(d.Modules))
		}
		for _, m := range d.Modules {
			name := m.Path + ".weight"
			var v [3][]float32
			x, _ := original.Tensor(name)
			y, _ := d.Float32().Tensor(name)
			z, _ := exported.Tensor(name)
			for i, t3 := range []checkpoint.Tensor{x, y, z} {
				if v[i], err = checkpoint.ReadAll(t3); err != nil {
					t.Fatal(err)
				}
			}
			var energy, coded, stored float64
			for i, w := range v[0] {
				energy += float64(w) * float64(w)
				coded += float64(w-v[1][i]) * float64(w-v[1][i])
				stored += float64(v[2][i]-v[1][i]) * float64(v[2][i]-v[1][i])
			}
			if coded > 1.3e-3*energy || coded < 1e-5*energy {
				t.Errorf("%s: relative error %g", name, coded/energy)
			}
			if stored > 1e-5*energy {
				t.Errorf("%s: export is off by %g", name, stored/energy)
			}
		}
	}
}

// TestTurboMethods: on a text that calibration has not seen, a calibration keeps
// more of a trained model in the same bytes, and no row is worse than with rtn.
func TestTurboMethods(t *testing.T) {
	src := fixture(t, "tiny-gemma3-target")
	windows, text := halves(t, src)
	original, err := decoder.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer original.Close()
	for _, group := range []int{0, 32} {
		var size int64
		var last float64
		for i, m := range []quant.Method{quant.RTN, quant.Refit, quant.Best} {
			out := filepath.Join(t.TempDir(), string(m))
			recipe := &quant.Recipe{Target: quant.TargetMLX, Default: quant.Format{Codec: "turboquant", Bits: 3, GroupSize: group, Method: m}}
			rep, err := mlx.Quantize(t.Context(), src, out, mlx.Options{Recipe: recipe,
				Calibration: &mlx.Calibration{Windows: windows, Correction: mlx.DefaultCorrection}})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range rep.Classes {
				if c.OutputError != nil && *c.OutputError > *c.OutputRTN {
					t.Errorf("%s g%d: %s has an output error of %g, rtn of %g", m, group, c.Class, *c.OutputError, *c.OutputRTN)
				}
			}
			d, err := mlx.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			q, err := decoder.New(d.Float32(), d.Config())
			if err != nil {
				t.Fatal(err)
			}
			e, err := fidelity.Evaluate(t.Context(), fidelity.Decoder(q), fidelity.Decoder(original), text, fidelity.Options{Window: 128, Limit: 16})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s g%d: %d bytes, KL %.4f", m, group, rep.Bytes, e.Against.KL)
			if i > 0 && (e.Against.KL > 0.95*last || rep.Bytes != size) {
				t.Errorf("%s g%d: KL %.4f in %d bytes, the method before has %.4f in %d", m, group, e.Against.KL, rep.Bytes, last, size)
			}
			last, size = e.Against.KL, rep.Bytes
		}
	}
}
