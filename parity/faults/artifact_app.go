package faults

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/models"
)

// appFaults are mistakes in the files of an app, beside the chunks.
func appFaults() []Fault {
	app := []string{"app"}
	return []Fault{
		{
			Name: "file-truncated", Family: Artifact, Form: formApp, Gates: []string{"manifest"}, Says: "embed_tokens_per_layer_q8.bin",
			What: "a file of the bundle was copied in part",
			files: func(b *bundle) error {
				path := filepath.Join(b.dir, "embed_tokens_per_layer_q8.bin")
				info, err := os.Stat(path)
				if err != nil {
					return err
				}
				return os.Truncate(path, info.Size()-100)
			},
		},
		{
			Name: "file-missing", Family: Artifact, Form: formApp, Gates: []string{"manifest"}, Says: "sin_sliding.npy",
			What:  "a file of the bundle was not copied",
			files: func(b *bundle) error { return os.Remove(filepath.Join(b.dir, "sin_sliding.npy")) },
		},
		{
			Name: "file-altered", Family: Artifact, Form: formApp, Gates: []string{"manifest"}, Says: "SHA-256",
			What: "a byte of a file of the bundle has changed",
			files: func(b *bundle) error {
				return b.bytes("embed_tokens_q8.bin", func(x []byte) { x[777] ^= 4 })
			},
		},
		{
			Name: "app-context", Family: Artifact, Form: formApp, Gates: app, Says: "context_length",
			What: "model_config.json has another context than the chunks",
			files: remade(func(b *bundle) error {
				return b.editJSON(filepath.Join(b.dir, conversion.AppConfigFile), func(c map[string]any) { c["context_length"] = 8192 })
			}),
		},
		{
			Name: "app-per-layer-scale", Family: Artifact, Form: formApp, Gates: app, Says: "per_layer_embed_scale",
			What: "model_config.json leaves out the factor √P of the per-layer table",
			files: remade(func(b *bundle) error {
				return b.editJSON(filepath.Join(b.dir, conversion.AppConfigFile), func(c map[string]any) { c["per_layer_embed_scale"] = 1 })
			}),
		},
		{
			Name: "app-rope-tail", Family: Artifact, Form: formApp, Gates: app, Says: "cos_full.npy",
			What: "the app's RoPE rows turn the tail of full layers' heads", Cause: "RoPE turns the tail of full layers' heads, which is at rest",
			files: remade(func(b *bundle) error {
				freq := wholeTail(b.contract.Attention[models.Full].InvFreq)
				for file, fn := range map[string]func(float64) float64{"cos_full.npy": math.Cos, "sin_full.npy": math.Sin} {
					err := b.bytes(file, func(x []byte) {
						x = x[128:]
						for p := 0; p < len(x)/(4*len(freq)); p++ {
							for i, f := range freq {
								v := half.FromF32(float32(fn(float64(float32(p) * f))))
								binary.LittleEndian.PutUint16(x[4*len(freq)*p+2*i:], v)
								binary.LittleEndian.PutUint16(x[4*len(freq)*p+2*(len(freq)+i):], v)
							}
						}
					})
					if err != nil {
						return err
					}
				}
				return nil
			}),
		},
		{
			Name: "app-table-scales", Family: Artifact, Form: formApp, Gates: app, Says: "embed_tokens: row",
			What: "scales of the app's quantized table belong to the next row",
			files: remade(func(b *bundle) error {
				return b.bytes("embed_tokens_scales.bin", func(x []byte) {
					copy(x, append(append([]byte{}, x[2:]...), x[:2]...))
				})
			}),
		},
		{
			Name: "app-projection", Family: Artifact, Form: formApp, Gates: app, Says: "per_layer_projection.bin",
			What: "the app's per-layer projection is stored transposed",
			files: remade(func(b *bundle) error {
				return b.bytes("per_layer_projection.bin", func(x []byte) {
					rows, cols := b.contract.Model.Layers*b.contract.PerLayer.Dim, b.contract.Model.Hidden
					was := append([]byte{}, x...)
					for i := range rows {
						for j := range cols {
							copy(x[2*(j*rows+i):], was[2*(i*cols+j):2*(i*cols+j)+2])
						}
					}
				})
			}),
		},
	}
}

// bytes changes a file in place; hard links are cut.
func (b *bundle) bytes(file string, change func([]byte)) error {
	path := filepath.Join(b.dir, file)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	change(data)
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// remade writes the manifest again after a change, as a converter that made
// the mistake would have.
func remade(change func(*bundle) error) func(*bundle) error {
	return func(b *bundle) error {
		if err := change(b); err != nil {
			return err
		}
		m, err := chunking.NewManifest(b.ctx, b.dir)
		if err != nil {
			return err
		}
		return m.Write(b.dir)
	}
}
