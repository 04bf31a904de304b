package mlx

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/tokenizer"
)

// BenchmarkBest quantizes a real checkpoint, named by SMELT_MODEL, calibrated on
// the text SMELT_TEXT, of which it takes SMELT_WINDOWS windows (8).
func BenchmarkBest(b *testing.B) {
	dir, text := os.Getenv("SMELT_MODEL"), os.Getenv("SMELT_TEXT")
	if dir == "" || text == "" {
		b.Skip("SMELT_MODEL or SMELT_TEXT is not set")
	}
	count := 8
	if n, err := strconv.Atoi(os.Getenv("SMELT_WINDOWS")); err == nil {
		count = n
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		b.Fatal(err)
	}
	texts, err := calibration.ReadTexts(text)
	if err != nil {
		b.Fatal(err)
	}
	windows, err := calibration.Windows(tok, texts, calibration.DefaultWindow, count)
	if err != nil {
		b.Fatal(err)
	}
	r := quant.Uniform(4, 64)
	r.Default.Method = quant.Best
	for b.Loop() {
		o := Options{Recipe: r, Force: true, Calibration: &Calibration{windows, DefaultCorrection}}
		if _, err := Quantize(b.Context(), dir, filepath.Join(b.TempDir(), "out"), o); err != nil {
			b.Fatal(err)
		}
	}
}
