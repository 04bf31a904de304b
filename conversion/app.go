package conversion

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/internal/elementary"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/models"
)

// BundleCoreMLLLM adds to a bundle the files that the CoreML-LLM app loads.
const BundleCoreMLLLM = "coreml-llm"

// Files of the app, beside the chunks.
const (
	AppConfigFile     = "model_config.json"
	AppHFDir          = "hf_model"
	appEmbedding      = chunking.EmbeddingInt8
	appPerLayer       = chunking.PerLayerInt8
	codesSuffix       = chunking.Int8Codes
	scalesSuffix      = chunking.Int8Scales
	appProjectionFile = "per_layer_projection.bin"
	appNormFile       = "per_layer_norm_weight.bin"
)

// appRopeRows is the number of positions in the RoPE tables.
func appRopeRows(context int) int { return max(2*context, 4096) }

// AppSizes are the sizes of the app's binary files, by name: what Convert
// writes, and what a loader may count on. V is the vocabulary, H hidden_size,
// L layers, P the width of the per-layer embeddings, D a head.
//
//	embed_tokens_q8.bin               V·H
//	embed_tokens_scales.bin           2·V
//	embed_tokens_per_layer_q8.bin     V·L·P
//	embed_tokens_per_layer_scales.bin 2·V
//	per_layer_projection.bin          2·L·P·H
//	per_layer_norm_weight.bin         2·P
//	cos_full.npy, …                   128 + 2·D·max(2·context, 4096)
func AppSizes(cfg *models.Config, context int) map[string]int64 {
	V, H, wide, P := int64(cfg.Vocab), int64(cfg.Hidden), int64(cfg.Layers)*int64(cfg.PerLayer), int64(cfg.PerLayer)
	m := map[string]int64{
		appEmbedding + codesSuffix:  V * H,
		appEmbedding + scalesSuffix: 2 * V,
		appPerLayer + codesSuffix:   V * wide,
		appPerLayer + scalesSuffix:  2 * V,
		appProjectionFile:           2 * wide * H,
		appNormFile:                 2 * P,
	}
	for _, k := range cfg.AllKinds() {
		n := npyHeader + 2*int64(cfg.Dims(k).HeadDim)*int64(appRopeRows(context))
		m["cos_"+string(k)+".npy"], m["sin_"+string(k)+".npy"] = n, n
	}
	return m
}

// appName names chunk i of n as the app looks for it.
func appName(i, n int) string {
	if n == 3 && i > 0 {
		return fmt.Sprintf("chunk%d_3way", i+1)
	}
	return fmt.Sprintf("chunk%d", i+1)
}

// appHints says where functions run best: decode and verify on the Neural
// Engine, prefill on the GPU.
func appHints(c *chunking.Contract) {
	for i := range c.Chunks {
		for j := range c.Chunks[i].Functions {
			f := &c.Chunks[i].Functions[j]
			if f.ComputeUnits = "CPU_AND_NE"; f.Kind == chunking.Prefill {
				f.ComputeUnits = "CPU_AND_GPU"
			}
		}
	}
}

// writeApp writes the app's files into a finished bundle whose tables are there
// already, links files of equal
// contents and lists everything in a manifest.
func (s *Source) writeApp(ctx context.Context, dir string, c *chunking.Contract, o Options) error {
	for file, name := range map[string]string{appProjectionFile: "model.per_layer_model_projection.weight", appNormFile: "model.per_layer_projection_norm.weight"} {
		t, ok := s.view.Tensor(name)
		if !ok {
			return fmt.Errorf("conversion: tensor %q is missing", name)
		}
		if err := writeFile(filepath.Join(dir, file), func(w io.Writer) error { return writeHalves(ctx, w, t) }); err != nil {
			return err
		}
	}
	for k, a := range c.Attention {
		for name, fn := range map[string]func(float64) float64{"cos_": elementary.Cos, "sin_": elementary.Sin} {
			path := filepath.Join(dir, name+string(k)+".npy")
			if err := writeFile(path, func(w io.Writer) error { return writeRope(w, a, appRopeRows(c.Context), fn) }); err != nil {
				return err
			}
		}
	}
	config, err := json.MarshalIndent(s.appConfig(c, o), "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, AppConfigFile), append(config, '\n'), 0o644)
	}
	if err == nil {
		err = linkTree(filepath.Join(dir, chunking.HFDir), filepath.Join(dir, AppHFDir))
	}
	if err != nil {
		return fmt.Errorf("conversion: %w", err)
	}
	o.progress("hashing files", 0, 1)
	manifest, err := chunking.NewManifest(ctx, dir)
	if err != nil {
		return err
	}
	o.progress("hashing files", 1, 1)
	if err := linkEqual(dir, manifest); err != nil {
		return fmt.Errorf("conversion: %w", err)
	}
	return manifest.Write(dir)
}

// appConfig is the app's model_config.json.
type appConfig struct {
	ModelName         string   `json:"model_name"`
	Architecture      string   `json:"architecture"`
	Hidden            int      `json:"hidden_size"`
	HiddenLayers      int      `json:"num_hidden_layers"`
	Layers            int      `json:"num_layers"`
	Heads             int      `json:"num_attention_heads"`
	KVHeads           int      `json:"num_key_value_heads"`
	HeadDim           int      `json:"head_dim"`
	GlobalHeadDim     int      `json:"global_head_dim"`
	Vocab             int      `json:"vocab_size"`
	Context           int      `json:"context_length"`
	Window            int      `json:"sliding_window"`
	PerLayer          int      `json:"per_layer_dim"`
	Shared            int      `json:"num_kv_shared_layers"`
	LayerTypes        []string `json:"layer_types"`
	EmbedScale        float64  `json:"embed_scale"`
	PerLayerScale     float64  `json:"per_layer_embed_scale"`
	ProjectionScale   float64  `json:"per_layer_model_projection_scale"`
	InputScale        float64  `json:"per_layer_input_scale"`
	Eps               float64  `json:"rms_norm_eps"`
	BOS               int      `json:"bos_token_id"`
	EOS               int      `json:"eos_token_id"`
	EOSAll            []int    `json:"eos_token_ids"`
	Softcap           float64  `json:"final_logit_softcapping"`
	Quantization      string   `json:"quantization"`
	ComputeUnits      string   `json:"compute_units"`
	TokenizerRepo     string   `json:"tokenizer_repo"`
	SourceSHA256      string   `json:"source_sha256"`
	SourceConversions string   `json:"source_conversion"`
}

func (s *Source) appConfig(c *chunking.Contract, o Options) appConfig {
	cfg := s.Model.Config()
	a := appConfig{
		ModelName: cfg.Architecture, Architecture: cfg.Architecture,
		Hidden: cfg.Hidden, HiddenLayers: cfg.Layers, Layers: cfg.Layers, Heads: cfg.Heads, KVHeads: cfg.KVHeads,
		HeadDim: cfg.Dims(models.Sliding).HeadDim, GlobalHeadDim: cfg.Dims(models.Full).HeadDim,
		Vocab: cfg.Vocab, Context: c.Context, Window: cfg.Window, PerLayer: cfg.PerLayer,
		EmbedScale: c.Embedding.Scale, PerLayerScale: cfg.PerLayerScale(),
		ProjectionScale: 1 / math.Sqrt(float64(cfg.Hidden)), InputScale: math.Sqrt2 / 2,
		Eps: cfg.Eps, BOS: cfg.BOS, EOSAll: c.Model.EOS, Softcap: cfg.FinalSoftcap,
		Quantization: "none", ComputeUnits: "CPU_AND_NE",
		SourceSHA256: c.Source.SHA256, SourceConversions: c.Source.Conversion,
	}
	if len(a.EOSAll) > 0 {
		a.EOS = a.EOSAll[0]
	}
	if o.Quantize != nil {
		a.Quantization = fmt.Sprintf("%s%d", o.Quantize.Default.Codec, o.Quantize.Default.Bits)
	}
	for i, k := range cfg.Kinds {
		a.LayerTypes = append(a.LayerTypes, string(k)+"_attention")
		if cfg.Source(i) != i {
			a.Shared++
		}
	}
	return a
}

// writeFile creates a file and fills it.
func writeFile(path string, fill func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("conversion: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<18)
	err = fill(w)
	if e := w.Flush(); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("conversion: %s: %w", filepath.Base(path), err)
	}
	return nil
}

// writeHalves writes a tensor as raw fp16.
func writeHalves(ctx context.Context, w io.Writer, t checkpoint.Tensor) error {
	defer checkpoint.Release(t)
	buf := make([]float32, 1<<14)
	raw := make([]byte, 0, 2*len(buf))
	for off, n := 0, checkpoint.NumElements(t); off < n; off += len(buf) {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(len(buf), n-off)]
		if err := t.ReadFloat32(b, off); err != nil {
			return err
		}
		raw = raw[:0]
		for i, x := range b {
			if !(math.Abs(float64(x)) <= fp16Max) {
				return fmt.Errorf("tensor %q: element %d is %g, beyond fp16's %d", t.Name(), off+i, x, fp16Max)
			}
			h := half.FromF32(x)
			raw = append(raw, byte(h), byte(h>>8))
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}

// npyHeader is the length of what precedes the elements of an .npy file.
const npyHeader = 128

// writeRope writes rows of cos or sin, [rows, head_dim] in fp16, as NumPy
// stores arrays: the contract's frequencies twice over.
func writeRope(w io.Writer, a chunking.Attn, rows int, fn func(float64) float64) error {
	head := fmt.Sprintf("{'descr': '<f2', 'fortran_order': False, 'shape': (%d, %d), }", rows, a.HeadDim)
	if _, err := fmt.Fprintf(w, "\x93NUMPY\x01\x00%c%c%-*s\n", npyHeader-10, 0, npyHeader-11, head); err != nil {
		return err
	}
	n := len(a.InvFreq)
	row := make([]byte, 4*n)
	for p := range rows {
		for i, f := range a.InvFreq {
			h := half.FromF32(float32(fn(float64(float32(p) * f))))
			for _, at := range []int{2 * i, 2 * (n + i)} {
				row[at], row[at+1] = byte(h), byte(h>>8)
			}
		}
		if _, err := w.Write(row); err != nil {
			return err
		}
	}
	return nil
}
