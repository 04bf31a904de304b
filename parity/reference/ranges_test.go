package reference

import (
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"testing"

	"github.com/smelt-go/smelt/fixtures"
)

// TestRangeProbeBits pins every bit that a probe reports: processors, numbers
// of cores and compilers must agree, since the files of a conversion depend on
// it.
func TestRangeProbeBits(t *testing.T) {
	for name, want := range map[string]uint64{
		"gemma3":        0xf20867e5991a57e1,
		"llama3-scaled": 0x8cf21eb005c5199e,
		"qwen2":         0x4381ee6a80bff5ae,
	} {
		dir, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		m := openModel(t, dir)
		ids := make([]int32, 40)
		for i := range ids {
			ids[i] = int32(i * 7 % m.Config().Vocab)
		}
		for _, cores := range []int{1, 3} {
			before := runtime.GOMAXPROCS(cores)
			r, err := m.RangeProbe(t.Context(), ids)
			runtime.GOMAXPROCS(before)
			if err != nil {
				t.Fatal(err)
			}
			h := fnv.New64a()
			for _, s := range r.Sites {
				fmt.Fprintf(h, "%s %x\n", s.Name, math.Float32bits(s.MaxAbs))
			}
			if h.Sum64() != want {
				t.Errorf("%s: %d sites on %d cores hash to %#x, want %#x", name, len(r.Sites), cores, h.Sum64(), want)
			}
		}
	}
}
