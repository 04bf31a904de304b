package quant

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/littleendian"
)

// BenchmarkRealPalettes codes all matrices of the checkpoints in SMELT_REAL_MODELS
// with 4-bit palettes for 32 rows.
func BenchmarkRealPalettes(b *testing.B) {
	dirs, err := filepath.Glob(filepath.Join(os.Getenv("SMELT_REAL_MODELS"), "*", "config.json"))
	if err != nil || os.Getenv("SMELT_REAL_MODELS") == "" {
		b.Skip("SMELT_REAL_MODELS is not set")
	}
	for _, config := range dirs {
		b.Run(filepath.Base(filepath.Dir(config)), func(b *testing.B) {
			ck, err := checkpoint.Open(filepath.Dir(config))
			if err != nil {
				b.Fatal(err)
			}
			defer ck.Close()
			var bytes int64
			for b.Loop() {
				bytes = 0
				for _, name := range ck.Names() {
					t, _ := ck.Tensor(name)
					shape := t.Shape()
					if len(shape) != 2 {
						continue
					}
					raw, ok := checkpoint.Raw(t)
					w, aligned := littleendian.View[uint16](raw)
					if !ok || !aligned || t.DType() != checkpoint.BF16 {
						b.Fatalf("%s is not mapped bfloat16", name)
					}
					m, err := NewForm(Format{Codec: "palette", Bits: 4, GroupSize: 32}, shape[0], shape[1])
					if err != nil {
						b.Fatal(err)
					}
					read := func(dst []uint16, first int) error {
						kernel.BF16ToF16(dst, w[first:first+len(dst)], 1)
						return nil
					}
					if _, _, err := m.Encode(read, FormOptions{}); err != nil {
						b.Fatal(err)
					}
					bytes += int64(len(raw))
				}
			}
			b.SetBytes(bytes)
		})
	}
}
