package parity

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/parity/reference"
)

// appGate reads the files that the CoreML-LLM app reads beside the chunks.
func appGate() Gate {
	return Gate{
		ID:     "app",
		Proves: "the app's files say what contract, config.json and checkpoint do: model_config.json, quantized tables, projection, RoPE rows with their tail at rest",
		Skip: func(s *Subject) string {
			switch {
			case !exists(filepath.Join(s.Dir, conversion.AppConfigFile)):
				return "the bundle has no files for an app"
			case s.Config == nil:
				return "config.json cannot be read"
			}
			return ""
		},
		Run: func(_ context.Context, s *Subject) (*Result, error) {
			a := &appFiles{s: s, res: &Result{Status: Pass}}
			if err := errors.Join(a.config(), a.rope(), a.tables()); err != nil {
				return nil, err
			}
			a.res.note("files", float64(a.files))
			a.res.note("values", float64(a.values))
			return a.res, nil
		},
	}
}

type appFiles struct {
	s             *Subject
	res           *Result
	files, values int
}

// config compares model_config.json with contract and config.json.
func (a *appFiles) config() error {
	data, err := os.ReadFile(filepath.Join(a.s.Dir, conversion.AppConfigFile))
	if err != nil {
		return fmt.Errorf("parity: %w", err)
	}
	a.files++
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		a.res.fail("%s: %v", conversion.AppConfigFile, err)
		return nil
	}
	c, cfg := a.s.Contract, a.s.Config
	full, sliding := cfg.FullHeadDim, cfg.HeadDim
	kinds, shared := []any{}, 0
	for i, k := range cfg.Kinds {
		kinds = append(kinds, k.String())
		if cfg.KVSource[i] != i {
			shared++
		}
	}
	want := map[string]any{
		"context_length": c.Context, "hidden_size": cfg.Hidden, "num_hidden_layers": cfg.Layers, "num_layers": cfg.Layers,
		"num_attention_heads": cfg.Heads, "num_key_value_heads": cfg.KVHeads, "head_dim": sliding, "global_head_dim": full,
		"vocab_size": cfg.Vocab, "sliding_window": cfg.Window, "per_layer_dim": cfg.PerLayer.Width, "num_kv_shared_layers": shared,
		"layer_types": kinds, "rms_norm_eps": cfg.NormEps, "final_logit_softcapping": cfg.FinalSoftcap,
		"embed_scale": float64(cfg.EmbedScale) * c.ResidualScale, "per_layer_embed_scale": cfg.PerLayer.TokenScale,
		"per_layer_model_projection_scale": cfg.PerLayer.ProjectionScale, "per_layer_input_scale": cfg.PerLayer.CombineScale,
		"bos_token_id": c.Model.BOS, "source_sha256": c.Source.SHA256,
	}
	keys := make([]string, 0, len(want))
	for k := range want {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		a.values++
		v, ok := got[k]
		if !ok {
			a.res.symptom("no " + k)
			a.res.fail("%s has no %s", conversion.AppConfigFile, k)
			continue
		}
		if !sameJSON(v, want[k]) {
			a.res.symptom(k)
			a.res.fail("%s: %s is %v, contract and config.json imply %v", conversion.AppConfigFile, k, v, want[k])
		}
	}
	return nil
}

// sameJSON compares a decoded value with a number, a text or a list.
func sameJSON(got, want any) bool {
	g, ok := got.(float64)
	if !ok {
		return reflect.DeepEqual(got, want)
	}
	v := reflect.ValueOf(want)
	var w float64
	switch {
	case v.CanInt():
		w = float64(v.Int())
	case v.CanFloat():
		w = v.Float()
	default:
		return false
	}
	return math.Abs(g-w) <= 1e-6*math.Max(1, math.Abs(w))
}

// rope compares rows of the .npy tables with config.json's frequencies.
func (a *appFiles) rope() error {
	cfg := a.s.Config
	rows := max(2*a.s.Contract.Context, 4096)
	for _, k := range []struct {
		kind string
		rope reference.Rope
		dim  int
	}{{"full", cfg.FullRope, cfg.FullHeadDim}, {"sliding", cfg.SlidingRope, cfg.HeadDim}} {
		freq := k.rope.Frequencies(k.dim)
		for i, fn := range []func(float64) float64{math.Cos, math.Sin} {
			file := fmt.Sprintf("%s_%s.npy", []string{"cos", "sin"}[i], k.kind)
			f, err := a.open(file, 128+2*int64(k.dim)*int64(rows))
			if f == nil || err != nil {
				return err
			}
			row := make([]byte, 2*k.dim)
			for _, p := range []int{0, 1, 7, a.s.window(), a.s.Contract.Context - 1, rows - 1} {
				if _, err := f.ReadAt(row, 128+int64(p)*int64(len(row))); err != nil {
					f.Close()
					return fmt.Errorf("parity: %s: %w", file, err)
				}
				for i := range k.dim {
					a.values++
					x := half.ToF32(binary.LittleEndian.Uint16(row[2*i:]))
					want := fn(float64(float32(p) * freq[i%len(freq)]))
					if math.Abs(float64(x)-want) > 2e-3 {
						what := "rope row"
						if freq[i%len(freq)] == 0 {
							what = "rope tail"
						}
						a.res.symptom(what)
						a.res.failAt(p, "%s: row %d, dimension %d is %g, config.json implies %g (frequency %g)", file, p, i, x, want, freq[i%len(freq)])
						break
					}
				}
			}
			f.Close()
		}
	}
	return nil
}

// open opens a file of the bundle if it has the size it must have.
func (a *appFiles) open(name string, size int64) (*os.File, error) {
	f, err := os.Open(filepath.Join(a.s.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		a.res.symptom("missing file")
		a.res.fail("%s is missing", name)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("parity: %w", err)
	}
	a.files++
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("parity: %w", err)
	}
	if info.Size() != size {
		f.Close()
		a.res.symptom("file size")
		a.res.fail("%s has %d bytes, its shape implies %d", name, info.Size(), size)
		return nil, nil
	}
	return f, nil
}

// tables compares quantized tables and the projection with the checkpoint.
func (a *appFiles) tables() error {
	cfg := a.s.Config
	P, L := cfg.PerLayer.Width, cfg.Layers
	for _, t := range []struct {
		file, tensor string
		width        int
	}{{"embed_tokens", tableTensor, cfg.Hidden}, {"embed_tokens_per_layer", "model.embed_tokens_per_layer.weight", L * P}} {
		codes, err := a.open(t.file+"_q8.bin", int64(cfg.Vocab)*int64(t.width))
		if codes == nil || err != nil {
			return err
		}
		scales, err := a.open(t.file+"_scales.bin", 2*int64(cfg.Vocab))
		if scales == nil || err != nil {
			codes.Close()
			return err
		}
		err = a.rows(t.file, t.tensor, codes, scales, t.width)
		codes.Close()
		scales.Close()
		if err != nil {
			return err
		}
	}
	for _, t := range []struct {
		file, tensor string
		n            int
	}{{"per_layer_projection.bin", "model.per_layer_model_projection.weight", L * P * cfg.Hidden}, {"per_layer_norm_weight.bin", "model.per_layer_projection_norm.weight", P}} {
		f, err := a.open(t.file, 2*int64(t.n))
		if f == nil || err != nil {
			return err
		}
		err = a.halves(t.file, t.tensor, f, t.n)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// source is a tensor of the checkpoint, nil without one.
func (a *appFiles) source(name string) checkpoint.Tensor {
	if a.s.source == nil {
		return nil
	}
	t, _ := a.s.source.Tensor(name)
	return t
}

// rows holds int8·scale/127 against the stored rows.
func (a *appFiles) rows(file, tensor string, codes, scales io.ReaderAt, width int) error {
	t := a.source(tensor)
	if t == nil {
		return nil
	}
	vocab := a.s.Config.Vocab
	raw, scale, want := make([]byte, width), make([]byte, 2), make([]float32, width)
	for r := 0; r < vocab; r += max(1, vocab/tiedRows) {
		_, err := codes.ReadAt(raw, int64(r)*int64(width))
		if err == nil {
			_, err = scales.ReadAt(scale, 2*int64(r))
		}
		if err == nil {
			err = t.ReadFloat32(want, r*width)
		}
		if err != nil {
			return fmt.Errorf("parity: %s: %w", file, err)
		}
		step := float64(half.ToF32(binary.LittleEndian.Uint16(scale))) / 127
		for i, w := range want {
			a.values++
			if got := float64(int8(raw[i])) * step; math.Abs(got-float64(w)) > 0.6*step+1e-6 {
				a.res.symptom("table row")
				a.res.fail("%s: row %d, element %d is %s, the checkpoint's %s has %g (a step is %s)", file, r, i, short(got), tensor, w, short(step))
				return nil
			}
		}
	}
	return nil
}

// halves holds raw fp16 against a stored tensor.
func (a *appFiles) halves(file, tensor string, f io.ReaderAt, n int) error {
	t := a.source(tensor)
	if t == nil {
		return nil
	}
	count := min(n, 1<<20)
	raw, want := make([]byte, 2*count), make([]float32, count)
	_, err := f.ReadAt(raw, 0)
	if err == nil {
		err = t.ReadFloat32(want, 0)
	}
	if err != nil {
		return fmt.Errorf("parity: %s: %w", file, err)
	}
	for i, w := range want {
		a.values++
		if got := half.ToF32(binary.LittleEndian.Uint16(raw[2*i:])); got != half.ToF32(half.FromF32(w)) {
			a.res.symptom("table row")
			a.res.fail("%s: element %d is %g, the checkpoint's %s has %g", file, i, got, tensor, w)
			return nil
		}
	}
	return nil
}
