package mlx

import (
	"slices"

	"github.com/smelt-go/smelt/quant"
)

// unloadable warns of formats that mlx-lm does not know.
func unloadable(r *quant.Recipe) []string {
	turbo := func(f quant.Format) bool { return f.Codec == "turboquant" }
	if turbo(r.Default) || slices.ContainsFunc(r.Rules, func(u quant.Rule) bool { return turbo(u.Format) }) {
		return []string{"mlx-lm has no mode turboquant: smelt alone reads this directory (quantize --dequantize makes one that others load)"}
	}
	return nil
}
