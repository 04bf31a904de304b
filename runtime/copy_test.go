package runtime

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestCopyLoops compares the tuned copy with a walk over all indices.
func TestCopyLoops(t *testing.T) {
	f := &frame{pool: newPool(3)}
	rapid.Check(t, func(t *rapid.T) {
		rank := rapid.IntRange(0, 5).Draw(t, "rank")
		dims := make([]int, rank)
		for i := range dims {
			dims[i] = rapid.SampledFrom([]int{0, 1, 2, 3, 5, 17, 33}).Draw(t, "dim")
		}
		if numElements(dims) > 1<<18 {
			t.Skip("too large")
		}
		perm := rapid.Permutation(seq(rank)).Draw(t, "perm")
		// The source is dense in a permuted order of axes; some axes are
		// repeated (step 0) or walked backwards.
		permuted := make([]int, rank)
		for i, p := range perm {
			permuted[p] = dims[i]
		}
		st := strides(permuted)
		loops, so := make([]loop, rank), 0
		ds := strides(dims)
		for i, n := range dims {
			s := st[perm[i]]
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				s = 0
			case 1:
				so += max(n-1, 0) * s
				s = -s
			}
			loops[i] = loop{n, ds[i], s}
		}
		src := make([]uint32, numElements(dims)+1)
		for i := range src {
			src[i] = rand.Uint32()
		}
		want := make([]uint32, numElements(dims))
		forEach(dims, func(i int, idx []int) {
			s := so
			for k, l := range loops {
				s += idx[k] * l.s
			}
			want[i] = src[s]
		})
		got := make([]uint32, len(want))
		f.copyLoops(got, 0, src, so, loops)
		if !slices.Equal(got, want) {
			t.Fatalf("loops %v from %d: got %v, want %v", loops, so, got, want)
		}
	})
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func BenchmarkTranspose(b *testing.B) {
	f := &frame{pool: newPool(2)}
	src, dst := make([]uint32, 1<<20), make([]uint32, 1<<20)
	b.SetBytes(4 << 20)
	for b.Loop() {
		f.copyLoops(dst, 0, src, 0, []loop{{1024, 1024, 1}, {1024, 1, 1024}})
	}
}
