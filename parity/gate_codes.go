package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/quant"
)

// codesGate compares what compressed weights decode to with the checkpoint.
func codesGate() Gate {
	return Gate{
		ID:     "codes",
		Proves: "compressed weights decode to the checkpoint's within what their bits allow: scales, tables, axes and the order of codes are right",
		Skip: func(s *Subject) string {
			switch {
			case s.codes != nil:
				return ""
			case s.opts.Checkpoint == "":
				return "without a checkpoint there is nothing to compare weights with"
			}
			return "no weights are compressed"
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			return res, res.codes(ctx, s.codes, spreadsErrors(filepath.Join(s.Dir, chunking.ContractFile)))
		},
	}
}

// codes compares what weights decode to with what was stored.
func (res *Result) codes(ctx context.Context, codes *decodedSource, spread bool) error {
	worst := codeErrors{}
	for _, name := range slices.Sorted(maps.Keys(codes.weights)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		w := codes.weights[name]
		if w.bits == 0 {
			continue // as stored
		}
		e, err := measureCodes(w)
		if err != nil {
			return err
		}
		limit := codeLimits(w.bits, spread)
		kind := "linear"
		if w.palette {
			kind = "palette"
		}
		var what string
		switch {
		case !(e.mse <= limit.mse):
			res.symptom(kind + ": error")
			what = fmt.Sprintf("relative squared error %s, %s at most; the worst row is %d with %s", short(e.mse), short(limit.mse), e.row, short(e.rowMSE))
		case !(e.gain <= limit.gain):
			res.symptom(kind + ": gain")
			what = fmt.Sprintf("groups of %d are off in size by %s on average, %s at most (scales of other groups?)", codeGroup, percent(e.gain), percent(limit.gain))
		case w.palette && !(e.far <= limit.far):
			res.symptom(kind + ": not nearest")
			what = fmt.Sprintf("%s of the codes name an entry that is not the nearest in their row, %s at most (tables of other rows?)", percent(e.far), percent(limit.far))
		}
		if what != "" {
			res.fail("%s (%d-bit %s): %s", w.where, w.bits, kind, what)
			if res.Finding == nil {
				res.Finding = &Finding{Chunk: w.chunk, Function: w.function, Layer: layerOf(w.site),
					Site: w.site, Position: -1, Relative: Num(math.Sqrt(e.mse)), Limit: Num(math.Sqrt(limit.mse))}
			}
		}
		if share := e.mse / limit.mse; share >= worst.mse {
			worst = codeErrors{mse: share, gain: max(worst.gain, e.gain), far: max(worst.far, e.far)}
		}
	}
	res.note("weights", float64(len(codes.weights)))
	res.note("error of its limit", worst.mse)
	res.note("largest gain error", worst.gain)
	return nil
}

// codeGroup is the number of neighbouring elements of a row whose size is
// compared.
const codeGroup = 32

// codeErrors are relative: mse is Σ(w-ŵ)²/Σw², gain the mean over groups of
// |Σwŵ/Σŵ² - 1|, far the share of codes that do not name the value nearest to
// the weight among those their row uses.
type codeErrors struct {
	mse, gain, far float64
	row            int
	rowMSE         float64
}

// codeLimits leave room for every known way to find codes. Those that spread
// an element's error over its neighbours choose codes that are not the nearest.
func codeLimits(bits int, spread bool) codeErrors {
	e := codeErrors{mse: 0.9, gain: 1, far: 1}
	for _, l := range []struct {
		bits      int
		mse, gain float64
	}{{8, 5e-3, 0.02}, {6, 1e-2, 0.04}, {4, 6e-2, 0.09}, {3, 0.2, 0.18}, {2, 0.5, 0.35}} {
		if bits >= l.bits {
			e = codeErrors{mse: l.mse, gain: l.gain, far: 0.25}
			break
		}
	}
	if spread {
		e.mse, e.far = 3*e.mse, 0.7
	}
	return e
}

// spreadsErrors reports whether a contract's recipe finds codes in another way
// than weight by weight.
func spreadsErrors(contract string) bool {
	data, err := os.ReadFile(contract)
	if err != nil {
		return false
	}
	var c struct {
		Quantization any `json:"quantization"`
	}
	if json.Unmarshal(data, &c) != nil {
		return false
	}
	var walk func(any) bool
	walk = func(x any) bool {
		switch x := x.(type) {
		case map[string]any:
			for k, v := range x {
				if m, ok := v.(string); k == "method" && ok && m != string(quant.RTN) && m != string(quant.Refit) || walk(v) {
					return true
				}
			}
		case []any:
			return slices.ContainsFunc(x, walk)
		}
		return false
	}
	return walk(c.Quantization)
}

// codeRows is how many rows of a large weight are measured.
const codeRows = 1024

func measureCodes(w *decodedWeight) (codeErrors, error) {
	shape := w.Tensor.Shape()
	n := shape[0]
	width := checkpoint.NumElements(w.Tensor) / max(n, 1)
	step := max(1, n/codeRows)
	want, got := make([]float32, width), make([]float32, width)
	var e codeErrors
	var err2, size, gains float64
	groups, far, elements := 0, 0, 0
	var levels []float64
	defer checkpoint.Release(w.Tensor)
	for r := 0; r < n; r += step {
		if err := w.Tensor.ReadFloat32(want, r*width); err != nil {
			return e, err
		}
		if err := w.ReadFloat32(got, r*width); err != nil {
			return e, err
		}
		var rowErr, rowSize float64
		for i := range want {
			if w.sparse && got[i] == 0 {
				continue // left out
			}
			d := float64(want[i]) - float64(got[i])
			rowErr += d * d
			rowSize += float64(want[i]) * float64(want[i])
		}
		for i := 0; i < width; i += codeGroup {
			var wg, gg float64
			for j := i; j < min(i+codeGroup, width); j++ {
				wg += float64(want[j]) * float64(got[j])
				gg += float64(got[j]) * float64(got[j])
			}
			if gg > 0 {
				gains += math.Abs(wg/gg - 1)
				groups++
			}
		}
		levels = levels[:0]
		for _, v := range got {
			levels = append(levels, float64(v))
		}
		sort.Float64s(levels)
		levels = slices.Compact(levels)
		for i := range want {
			if w.sparse && got[i] == 0 {
				continue
			}
			at := sort.SearchFloat64s(levels, float64(want[i]))
			best := math.Inf(1)
			for _, j := range []int{at - 1, at} {
				if j >= 0 && j < len(levels) {
					best = math.Min(best, math.Abs(levels[j]-float64(want[i])))
				}
			}
			if math.Abs(float64(got[i])-float64(want[i])) > best*1.01+1e-6*math.Abs(float64(want[i])) {
				far++
			}
			elements++
		}
		err2, size = err2+rowErr, size+rowSize
		if rowSize > 0 && rowErr/rowSize > e.rowMSE {
			e.row, e.rowMSE = r, rowErr/rowSize
		}
	}
	if size > 0 {
		e.mse = err2 / size
	} else if err2 > 0 {
		e.mse = math.Inf(1)
	}
	e.gain = gains / float64(max(groups, 1))
	e.far = float64(far) / float64(max(elements, 1))
	return e, nil
}
