package mlx

import (
	"context"
	"fmt"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/atomicdir"
)

// Dequantize writes the quantized MLX model in src as one of plain weights, in
// the type of its scales, to the directory out. Decoded values are those of
// MLX on the CPU: the product and the sum are both rounded.
func Dequantize(ctx context.Context, src, out string, force bool) error {
	if err := replaceable(out, force); err != nil {
		return err
	}
	d, err := Open(src)
	if err != nil {
		return err
	}
	defer d.Close()
	return atomicdir.Write(out, atomicdir.Options{Force: force}, func(dir string) error {
		var tensors []checkpoint.Tensor
		var parameters int64
		for _, name := range d.Names() {
			t, _ := d.Tensor(name)
			tensors = append(tensors, t)
			parameters += int64(checkpoint.NumElements(t))
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("mlx: %w", err)
		}
		if err := checkpoint.WriteSharded(dir, tensors, map[string]string{"format": "mlx"}, maxShardBytes); err != nil {
			return err
		}
		if _, err := writeIndex(dir, parameters); err != nil {
			return err
		}
		if err := writeFile(dir, "config.json", d.Config()); err != nil {
			return err
		}
		return copyPassengers(src, dir)
	})
}
