package runtime

import (
	"fmt"
	"testing"

	"github.com/smelt-go/smelt/mil"
)

// smolDecoder has the dimensions of SmolLM2-135M.
var smolDecoder = decoderSize{layers: 30, hidden: 576, heads: 9, kv: 3, dim: 64, mlp: 1536, vocab: 49152, context: 512}

// BenchmarkStep measures one run of a decoder of T tokens over a cache of 512
// slots, 100 of them in use.
func BenchmarkStep(b *testing.B) {
	for _, d := range []struct {
		name string
		decoderSize
	}{{"tiny", tinyDecoder}, {"smollm2-135m", smolDecoder}, {"gemma3-270m", gemmaDecoder}} {
		w := d.weights()
		for _, T := range []int{1, 128} {
			for _, mode := range []Mode{Typed, FP32} {
				b.Run(fmt.Sprintf("%s/T=%d/%v", d.name, T, mode), func(b *testing.B) {
					p := mil.NewProgram()
					p.Functions["f"] = d.build(b, "f", T, w)
					pr, err := Load(p, Options{Mode: mode})
					if err != nil {
						b.Fatal(err)
					}
					in := pr.New()
					keys, values := d.cache()
					tokens := make([]int32, T)
					for i := range tokens {
						tokens[i] = int32(i * 1000 % d.vocab)
					}
					args := d.inputs(tokens, min(100, d.context/2), keys, values)
					run := func() {
						if _, err := in.Run("f", args); err != nil {
							b.Fatal(err)
						}
					}
					run() // makes the buffers
					b.ReportAllocs()
					for b.Loop() {
						run()
					}
					b.ReportMetric(float64(T*b.N)/b.Elapsed().Seconds(), "tok/s")
				})
			}
		}
	}
}
