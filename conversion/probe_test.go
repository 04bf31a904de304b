package conversion

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/tokenizer"
)

func openFixture(t testing.TB, name string) *Source {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// ranges runs the probe's ids with the product given.
func (s *Source) ranges(t testing.TB, ids []int32, p reference.Product) reference.Ranges {
	t.Helper()
	config, err := s.config()
	if err != nil {
		t.Fatal(err)
	}
	m, err := reference.New(s.view, config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.RangeProbeWith(t.Context(), ids, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var probed = []string{"gemma3", "llama-tied", "llama3-scaled", "qwen2", "qwen3", "gemma4-e2b"}

// The probe's product changes no range noticeably: a scale is a power of two,
// and the headroom is four.
func TestProbeAgreesWithReference(t *testing.T) {
	for _, name := range probed {
		s := openFixture(t, name)
		ids := s.probeIDs(nil)
		got, want := s.ranges(t, ids, product), s.ranges(t, ids, nil)
		for i, w := range want.Sites {
			g := got.Sites[i]
			if g.Name != w.Name || math.Abs(float64(g.MaxAbs-w.MaxAbs)) > 1e-3*float64(w.MaxAbs) {
				t.Errorf("%s: %v, the reference says %v", name, g, w)
			}
		}
	}
}

// Every bit that the probe reports is pinned: processors, their extensions and
// numbers of cores must agree, since the files of a conversion depend on it.
func TestProbeBits(t *testing.T) {
	for name, want := range map[string]uint64{
		"gemma3":        0x49fe38f0ddc4e4cd,
		"llama3-scaled": 0x4f1de567f8fee7a0,
		"qwen2":         0x3bf909375d3583ab,
	} {
		s := openFixture(t, name)
		for _, cores := range []int{1, 3} {
			before := runtime.GOMAXPROCS(cores)
			r := s.ranges(t, s.probeIDs(nil), product)
			runtime.GOMAXPROCS(before)
			h := fnv.New64a()
			for _, site := range r.Sites {
				fmt.Fprintf(h, "%s %x\n", site.Name, math.Float32bits(site.MaxAbs))
			}
			if h.Sum64() != want {
				t.Errorf("%s: %d sites on %d cores hash to %#x, want %#x", name, len(r.Sites), cores, h.Sum64(), want)
			}
		}
	}
}

func TestProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	// Several blocks, rows that are no multiple of a tile, an offset.
	const T, in, stored, first, out = 3, 1000, 700, 37, 600
	x := &reference.Matrix{Rows: T, Cols: in, Data: numbers(T * in)}
	w, bias := numbers(stored*in), numbers(out)
	for _, d := range []checkpoint.DType{checkpoint.F32, checkpoint.BF16, checkpoint.F16} {
		wt := checkpoint.AsType(checkpoint.NewFloat32("w", []int{stored, in}, w), d)
		wide, err := checkpoint.ReadAll(wt)
		if err != nil {
			t.Fatal(err)
		}
		y := reference.NewMatrix(T, out)
		if err := product(y, x, wt, first, bias); err != nil {
			t.Fatal(err)
		}
		for i := range T {
			for j := range out {
				sum, mag := float64(bias[j]), 1.0
				for k, a := range x.Row(i) {
					p := float64(a) * float64(wide[(first+j)*in+k])
					sum, mag = sum+p, mag+math.Abs(p)
				}
				if got := float64(y.Row(i)[j]); math.Abs(got-sum) > mag*in*0x1p-24 {
					t.Fatalf("%v [%d,%d]: %v, want %v", d, i, j, got, sum)
				}
			}
		}
	}
	w[(first+400)*in+7] = float32(math.Inf(1))
	w[(first+500)*in] = float32(math.NaN())
	err := product(reference.NewMatrix(T, out), x, checkpoint.NewFloat32("w", []int{stored, in}, w), first, nil)
	if err == nil || !strings.Contains(err.Error(), `tensor "w": element 437007 is +Inf`) {
		t.Errorf("a weight that is not finite: %v", err)
	}
}

// The pieces of the probe are found in either kind of vocabulary.
func TestProbePieces(t *testing.T) {
	vocabulary := func(space, newline string) *tokenizer.Tokenizer {
		var entries []string
		for i, p := range probePieces {
			p = strings.NewReplacer(" ", space, "\n", newline).Replace(p)
			entries = append(entries, fmt.Sprintf("%q:%d", p, 10+i))
		}
		tok, err := tokenizer.Parse("test", []byte(`{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,`+
			`"pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{"type":"BPE","vocab":{`+strings.Join(entries, ",")+`},"merges":[]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	s := openFixture(t, "gemma3")
	for _, tok := range []*tokenizer.Tokenizer{vocabulary(" ", "\n"), vocabulary("\u2581", "\n"), vocabulary("\u0120", "\u010a")} {
		ids := s.probeIDs(tok)
		if len(ids) != probeTokens || ids[0] != int32(s.Model.Config().BOS) {
			t.Fatalf("ids %v", ids)
		}
		for i, id := range ids[1:] {
			if int(id) != 10+i {
				t.Errorf("piece %q has id %d, want %d", probePieces[i], id, 10+i)
			}
		}
	}
}

// The few tokens of the probe find the range of a long text. SMELT_REAL_MODELS
// is a directory with one checkpoint directory a model.
func TestProbeFindsTheRange(t *testing.T) {
	models := os.Getenv("SMELT_REAL_MODELS")
	if models == "" {
		t.Skip("SMELT_REAL_MODELS is not set")
	}
	dirs, err := filepath.Glob(filepath.Join(models, "*", "config.json"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no models in %s (%v)", models, err)
	}
	text, err := os.ReadFile(filepath.Join("..", "RATIONALE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range dirs {
		t.Run(filepath.Base(filepath.Dir(config)), func(t *testing.T) {
			s, err := OpenSource(filepath.Dir(config))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			tok, err := s.tokenizer()
			if err != nil || tok == nil {
				t.Fatalf("no tokenizer (%v)", err)
			}
			p, err := s.probe(t.Context(), tok)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := tok.Encode(string(text), tokenizer.EncodeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(s.probeIDs(nil)[:1:1], ids[:255]...) // after the token that starts a text
			long := slices.Max(s.ranges(t, ids, product).Residual())
			t.Logf("the probe's %d tokens reach %v, %d tokens of text %v", p.Tokens, p.Residual, len(ids), long)
			if p.Residual < 0.95*long {
				t.Errorf("the probe misses the range")
			}
		})
	}
}
