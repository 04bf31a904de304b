package mlx_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fidelity"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/tokenizer"
)

// halves are windows to calibrate on, and the tokens of another part of the same
// text.
func halves(t *testing.T, dir string) (windows [][]int32, rest []int32) {
	t.Helper()
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "heldout.txt"))
	if err != nil {
		t.Fatal(err)
	}
	half := strings.Index(string(data[len(data)/2:]), "\n") + len(data)/2
	windows, err = calibration.Windows(tok, []calibration.Text{{Text: string(data[:half])}}, 128, 64)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err = tok.Encode(string(data[half:]), tokenizer.EncodeOptions{}); err != nil {
		t.Fatal(err)
	}
	return windows, rest
}

func uniform(bits int, m quant.Method) *quant.Recipe {
	r := quant.Uniform(bits, 32)
	r.Default.Method = m
	return r
}

func weights(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestMethods: on a text that calibration has not seen, every method keeps more of
// a trained model than the one before, at the same size.
func TestMethods(t *testing.T) {
	src := fixture(t, "tiny-gemma3-target")
	windows, text := halves(t, src)
	original, err := decoder.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer original.Close()
	var size int64
	var last float64
	for i, m := range []quant.Method{quant.RTN, quant.Refit, quant.ErrorFeedback, quant.Best} {
		out := filepath.Join(t.TempDir(), string(m))
		rep, err := mlx.Quantize(t.Context(), src, out, mlx.Options{Recipe: uniform(3, m),
			Calibration: &mlx.Calibration{Windows: windows, Correction: mlx.DefaultCorrection}})
		if err != nil {
			t.Fatal(err)
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
		r, err := fidelity.Evaluate(t.Context(), fidelity.Decoder(q), fidelity.Decoder(original), text, fidelity.Options{Window: 128})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, KL %.4f", m, rep.Bytes, r.Against.KL)
		if i == 0 {
			size = rep.Bytes
		} else if rep.Bytes != size || r.Against.KL > 0.95*last {
			t.Errorf("%s: %d bytes, KL %g; before %d, %g", m, rep.Bytes, r.Against.KL, size, last)
		}
		last = r.Against.KL
		for _, c := range rep.Classes {
			if m != quant.RTN && c.RelativeMSE != nil {
				if c.OutputError == nil || !(*c.OutputError <= *c.OutputRTN) {
					t.Errorf("%s: class %s: output error %v, rtn %v", m, c.Class, c.OutputError, c.OutputRTN)
				}
			} else if c.OutputError != nil {
				t.Errorf("%s: class %s has an output error", m, c.Class)
			}
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(out), "."+string(m)+".modules")); err == nil {
			t.Errorf("%s: finished modules were left behind", m)
		}
		ck, err := checkpoint.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer ck.Close()
		if got := ck.Metadata()["smelt.calibration"]; (got != "") != (m != quant.RTN) {
			t.Errorf("%s: metadata say %q", m, got)
		}
	}
}

// TestResume: a run that is stopped and started again writes the bytes of one that
// was not, on any number of cores; one with other settings takes nothing over.
func TestResume(t *testing.T) {
	src := fixture(t, "tiny-gemma3-target")
	windows, _ := halves(t, src)
	dir := t.TempDir()
	run := func(ctx context.Context, name string, correction float64, progress func(string, int64, int64)) ([]byte, error) {
		out := filepath.Join(dir, name)
		_, err := mlx.Quantize(ctx, src, out, mlx.Options{Recipe: uniform(4, quant.Best), Progress: progress,
			Calibration: &mlx.Calibration{Windows: windows[:8], Correction: correction}})
		if err != nil {
			return nil, err
		}
		return weights(t, out), nil
	}
	want, err := run(t.Context(), "whole", 0.5, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = run(ctx, "stopped", 0.5, func(_ string, done, total int64) {
		if 2*done > total {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, ".stopped.modules", "*.safetensors"))
	if err != nil || len(kept) < 8 {
		t.Fatalf("%d finished modules were kept", len(kept))
	}
	if _, err := os.Stat(filepath.Join(dir, "stopped")); err == nil {
		t.Error("a stopped run has left an output")
	}
	// One of the files is damaged.
	if err := os.WriteFile(kept[1], []byte("junk"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := runtime.GOMAXPROCS(3)
	got, err := run(t.Context(), "stopped", 0.5, nil)
	runtime.GOMAXPROCS(before)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the resumed run wrote other bytes")
	}
	other, err := run(t.Context(), "other", 0.25, nil)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(other, want) {
		t.Error("the correction changes nothing")
	}
}

// TestUntied: an embedding that is not the head is refitted; without a text, a
// method that needs one is refused.
func TestUntied(t *testing.T) {
	src := fixture(t, "llama3-scaled")
	windows := [][]int32{make([]int32, 64), make([]int32, 64)}
	for i := range windows {
		for j := range windows[i] {
			windows[i][j] = int32((i*64 + j*37) % 250)
		}
	}
	for _, m := range []quant.Method{quant.Best, quant.ErrorFeedback} {
		rep, err := mlx.Quantize(t.Context(), src, filepath.Join(t.TempDir(), "q"), mlx.Options{Recipe: uniform(4, m),
			Calibration: &mlx.Calibration{Windows: windows, Correction: 0.5}})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range rep.Modules {
			want := m
			switch {
			case x.RelativeMSE == nil:
				want = ""
			case x.Path == "model.embed_tokens":
				want = quant.Refit
			}
			if x.Method != want {
				t.Errorf("%s: method %q, want %q", x.Path, x.Method, want)
			}
		}
	}
	_, err := mlx.Quantize(t.Context(), src, filepath.Join(t.TempDir(), "q"), mlx.Options{Recipe: uniform(4, quant.Best)})
	if err == nil || !strings.Contains(err.Error(), "needs a calibration text") {
		t.Errorf("no text: %v", err)
	}
}
