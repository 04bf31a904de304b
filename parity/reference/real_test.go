package reference

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/smelt-go/smelt/checkpoint"
)

// TestRealModels compares whole published models with a PyTorch recording that
// holds the argmax, the top five logits and the log-sum-exp of every position.
// SMELT_REAL_MODELS is a directory with one checkpoint directory a model,
// SMELT_REAL_GOLDENS one with <model>.safetensors.
func TestRealModels(t *testing.T) {
	models, goldens := os.Getenv("SMELT_REAL_MODELS"), os.Getenv("SMELT_REAL_GOLDENS")
	if models == "" || goldens == "" {
		t.Skip("SMELT_REAL_MODELS and SMELT_REAL_GOLDENS are not set")
	}
	recordings, err := filepath.Glob(filepath.Join(goldens, "*.safetensors"))
	if err != nil || len(recordings) == 0 {
		t.Fatalf("no recordings in %s (%v)", goldens, err)
	}
	for _, file := range recordings {
		name := filepath.Base(file[:len(file)-len(".safetensors")])
		t.Run(name, func(t *testing.T) {
			src, err := checkpoint.OpenFile(file)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			g := &golden{src: src}
			for _, id := range g.ints(t, "input_ids") {
				g.ids = append(g.ids, int32(id))
			}
			start := time.Now()
			m := openModel(t, filepath.Join(models, name))
			T := len(g.ids)
			best, bestAt := make([]float32, T), make([]int, T)
			for i := range best {
				best[i] = float32(math.Inf(-1))
			}
			top, topIDs := g.matrix(t, "top5_logits"), g.ints(t, "top5_ids")
			sums := make([]float64, T)
			var worst float64
			_, err = m.Forward(t.Context(), g.ids, Options{Head: true, HeadTile: func(first int, tile *Matrix) error {
				for p := range tile.Rows {
					row := tile.Row(p)
					if at := argmax(row); row[at] > best[p] {
						best[p], bestAt[p] = row[at], first+at
					}
					for _, x := range row {
						sums[p] += math.Exp(float64(x - top.Row(p)[0]))
					}
					for i, want := range top.Row(p) {
						if id := int(topIDs[p*top.Cols+i]) - first; id >= 0 && id < tile.Cols {
							worst = max(worst, math.Abs(float64(row[id]-want)))
						}
					}
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			elapsed := time.Since(start)
			agree, worstLSE := 0, 0.0
			for p, want := range g.ints(t, "argmax") {
				if bestAt[p] == int(want) {
					agree++
				}
				lse := g.tensor(t, "lse")
				v := make([]float32, 1)
				if err := lse.ReadFloat32(v, p); err != nil {
					t.Fatal(err)
				}
				worstLSE = max(worstLSE, math.Abs(float64(top.Row(p)[0])+math.Log(sums[p])-float64(v[0])))
			}
			t.Logf("%d tokens in %v: argmax %d/%d, top-5 logits max |Δ| %.3g (peak %.3g), log-sum-exp max |Δ| %.3g",
				T, elapsed.Round(time.Millisecond), agree, T, worst, top.MaxAbs(), worstLSE)
			if agree != T {
				t.Errorf("argmax agrees at %d of %d positions", agree, T)
			}
			if bound := 1e-3 * float64(top.MaxAbs()); worst > bound || worstLSE > bound {
				t.Errorf("logits differ by %g, log-sum-exp by %g, want ≤ %g", worst, worstLSE, bound)
			}

			start = time.Now()
			r, err := m.RangeProbe(t.Context(), g.ids)
			if err != nil {
				t.Fatal(err)
			}
			residual := r.Residual()
			t.Logf("range probe in %v: residual peak %.6g of %d layers, scores %.4g (bound %.4g), mlp_act %.4g",
				time.Since(start).Round(time.Millisecond), slices.Max(residual), len(residual)-1, r.Max("scores"), r.Max("scores_bound"), r.Max("mlp_act"))
			if os.Getenv("SMELT_REAL_VERBOSE") != "" {
				data, _ := json.Marshal(r)
				t.Logf("%s", data)
			}
		})
	}
}
