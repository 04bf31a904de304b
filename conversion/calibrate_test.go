package conversion_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/quant"
)

// TestCalibrated: codes that learn from a text lose less of the outputs, nothing
// of the work is left behind, and the contract tells conversions apart.
func TestCalibrated(t *testing.T) {
	for _, name := range []string{"gemma3", "llama-tied"} {
		src := fixture(t, name)
		var windows [][]int32
		for i := range 6 {
			ids := make([]int32, 48)
			for j := range ids {
				ids[j] = int32((i*7919 + j*j*31 + j*13) % 256)
			}
			windows = append(windows, ids)
		}
		for _, f := range []quant.Format{
			{Codec: "palette", Bits: 4, GroupSize: 16},
			{Codec: "linear", Bits: 4, Granularity: "block", GroupSize: 16},
		} {
			f.Method = quant.Best
			o := conversion.Options{Chunks: 1, Quantize: &quant.Recipe{Target: quant.TargetCoreML, Default: f, KeepIndivisible: true},
				Calibration: &conversion.Calibration{Windows: windows, Correction: 0.5}}
			out, r := convert(t, src, o)
			seen := 0
			for _, c := range r.Compressed {
				if c.OutputError == nil {
					continue
				}
				seen++
				if *c.OutputError > 0.8**c.OutputRTN || *c.OutputError <= 0 {
					t.Errorf("%s %s: class %s has output error %g, with rtn %g", name, f.Describe(), c.Class, *c.OutputError, *c.OutputRTN)
				}
			}
			if seen < 7 {
				t.Errorf("%s %s: %d classes are calibrated", name, f.Describe(), seen)
			}
			if r.Contract().Calibration == "" {
				t.Errorf("%s: the contract has no calibration", name)
			}
			left, err := filepath.Glob(filepath.Join(filepath.Dir(out), ".*.codes-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			_, again := convert(t, src, o)
			if d := cmp.Diff(r.Contract().Source, again.Contract().Source); d != "" {
				t.Errorf("%s: another time, another conversion: %s", name, d)
			}
			o.Calibration = &conversion.Calibration{Windows: windows[1:]}
			if _, other := convert(t, src, o); other.Contract().Source.Conversion == r.Contract().Source.Conversion {
				t.Errorf("%s: another text, the same conversion", name)
			}
			o.Calibration = nil
			if _, err := conversion.Convert(t.Context(), src, filepath.Join(t.TempDir(), "out"), o); err == nil || !strings.Contains(err.Error(), "needs a calibration text") {
				t.Errorf("without a text: %v", err)
			}
			if _, err := os.Stat(out); err != nil {
				t.Error(err)
			}
		}
	}
}
