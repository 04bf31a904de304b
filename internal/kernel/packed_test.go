package kernel

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/internal/alloctest"
	"github.com/smelt-go/smelt/internal/half"
)

// packStream packs codes LSB first.
func packStream(codes []byte, bits int) []byte {
	out := make([]byte, (len(codes)*bits+7)/8)
	for i, c := range codes {
		for b := range bits {
			at := i*bits + b
			out[at/8] |= c >> b & 1 << (at % 8)
		}
	}
	return out
}

// plainPacked is a packed matrix with its parts in the open, and what they
// mean.
type plainPacked struct {
	Packed
	codes                      []byte
	table, scale, offset, bias []float32
}

func (p *plainPacked) roundTo(x float32) float32 {
	switch p.Round {
	case RoundToF16:
		return half.ToF32(half.FromF32(x))
	case RoundToBF16:
		return half.FromBF16(half.ToBF16(x))
	}
	return x
}

// number is element (r, c), as the documentation has it.
func (p *plainPacked) number(r, c int) float32 {
	v := max(p.Vector, 1)
	code := p.codes[r/v*p.K+c]
	var x float32
	switch {
	case p.table != nil:
		entry := r/v/p.TableRows<<p.Bits + int(code)
		x = p.table[entry*v+r%v]
	case p.Signed && code>>(p.Bits-1) == 1:
		x = float32(code) - float32(int(1)<<p.Bits)
	default:
		x = float32(code)
	}
	if p.scale == nil {
		return x
	}
	b := r/p.BlockRows*(p.K/p.Block) + c/p.Block
	if p.offset != nil {
		x -= p.offset[b]
	}
	x = p.roundTo(p.scale[b] * x)
	if p.bias != nil {
		x = p.roundTo(x + p.bias[b])
	}
	return x
}

// asHalves is numbers as fp16, which they are rounded to.
func asHalves(x []float32) Numbers {
	h := halves(x)
	half.F16ToF32(x, h)
	return Numbers{F16: h}
}

// randomPacked makes the codes of an n×k matrix.
func randomPacked(seed uint64, n, k, bits, vector int) *plainPacked {
	r := rand.New(rand.NewPCG(seed, uint64(n*k*bits)))
	p := &plainPacked{Packed: Packed{N: n * vector, K: k, Bits: bits, Vector: vector}}
	p.codes = make([]byte, n*k)
	for i := range p.codes {
		p.codes[i] = byte(r.IntN(1 << bits))
	}
	p.Codes = packStream(p.codes, bits)
	return p
}

// scaled gives p blocks of rows×cols with scales.
func (p *plainPacked) scaled(rows, cols int, wide bool) *plainPacked {
	p.BlockRows, p.Block = rows, cols
	p.scale = numbers(31, p.N/rows*(p.K/cols))
	for i := range p.scale {
		// Some products are subnormal halves, some overflow.
		p.scale[i] *= []float32{0.01, 3e-6, 1, 0.5}[i%4]
	}
	p.Scale = Numbers{F32: p.scale}
	if !wide {
		p.Scale = asHalves(p.scale)
	}
	return p
}

// regular makes all scales such that no product is subnormal or overflows.
func (p *plainPacked) regular() *plainPacked {
	for i, x := range numbers(32, len(p.scale)) {
		p.scale[i] = x/16 + 0x1p-14
		if x < 0 {
			p.scale[i] = x/16 - 0x1p-14
		}
	}
	if len(p.scale) > 3 {
		p.scale[3] = 0
	}
	if p.Scale.F16 != nil {
		p.Scale = asHalves(p.scale)
	}
	return p
}

// offsets are integer codes of the width of p's.
func (p *plainPacked) offsets() *plainPacked {
	r := rand.New(rand.NewPCG(77, 7))
	codes := make([]byte, len(p.scale))
	p.offset = make([]float32, len(p.scale))
	for i := range codes {
		codes[i] = byte(r.IntN(1 << p.Bits))
		p.offset[i] = float32(codes[i])
		if p.Signed && codes[i]>>(p.Bits-1) == 1 {
			p.offset[i] -= float32(int(1) << p.Bits)
		}
	}
	p.Offset = Numbers{Codes: packStream(codes, p.Bits), Bits: p.Bits, Signed: p.Signed}
	return p
}

func (p *plainPacked) biases() *plainPacked {
	p.bias = numbers(78, len(p.scale))
	p.Bias = Numbers{F32: p.bias}
	return p
}

func (p *plainPacked) rounded(r Rounding) *plainPacked { p.Round = r; return p }
func (p *plainPacked) signed() *plainPacked            { p.Signed = true; return p }

// tables gives every so many rows of codes a table.
func (p *plainPacked) tables(rows int, wide bool) *plainPacked {
	p.TableRows = rows
	p.table = numbers(79, p.N/rows<<p.Bits)
	p.Table = Numbers{F32: p.table}
	if !wide {
		p.Table = asHalves(p.table)
	}
	return p
}

// packedCases covers every form with its parameters, and matrices that no
// form takes.
func packedCases() map[string]*plainPacked {
	out := map[string]*plainPacked{}
	for _, bits := range []int{1, 2, 3, 4, 5, 6, 8} {
		for _, nk := range [][2]int{{1, 16}, {7, 48}, {17, 64}, {24, 100}, {70, 160}, {9, 7}} {
			n, k := nk[0], nk[1]
			name := func(format string, args ...any) string {
				return fmt.Sprintf("%d bits %d×%d %s", bits, n, k, fmt.Sprintf(format, args...))
			}
			for _, rows := range []int{1, 4, 8, 10, n} {
				if n%rows == 0 {
					out[name("tables of %d rows", rows)] = randomPacked(1, n, k, bits, 1).tables(rows, false)
				}
			}
			out[name("wide table")] = randomPacked(2, n, k, bits, 1).tables(n, true)
			out[name("vectors of 2")] = randomPacked(3, n, k, bits, 2).tables(n, false)
			out[name("vectors of 3")] = randomPacked(4, n, k, bits, 3).tables(n, true)
			for _, cols := range []int{16, 32, 64, 80, k} {
				if k%cols != 0 {
					continue
				}
				for r, round := range []Rounding{RoundNone, RoundToF16, RoundToBF16} {
					base := func(seed uint64) *plainPacked {
						return randomPacked(seed, n, k, bits, 1).scaled(1, cols, r == 0).rounded(round)
					}
					out[name("unsigned %d round %d", cols, r)] = base(5)
					out[name("unsigned %d round %d offset", cols, r)] = base(6).offsets()
					out[name("unsigned %d round %d bias", cols, r)] = base(7).biases()
					out[name("codebook %d round %d", cols, r)] = base(8).tables(n, false)
					if bits > 1 {
						out[name("signed %d round %d", cols, r)] = randomPacked(9, n, k, bits, 1).signed().scaled(1, cols, false).rounded(round)
						out[name("signed %d round %d offset", cols, r)] = randomPacked(10, n, k, bits, 1).signed().scaled(1, cols, false).rounded(round).offsets()
					}
				}
			}
			for _, cols := range []int{16, 32, k} {
				if k%cols != 0 {
					continue
				}
				base := func(seed uint64, rows int) *plainPacked {
					return randomPacked(seed, n, k, bits, 1).scaled(rows, cols, false).rounded(RoundToF16).regular()
				}
				out[name("regular unsigned %d", cols)] = base(14, 1)
				out[name("regular unsigned %d offset", cols)] = base(15, 1).offsets()
				out[name("regular unsigned %d rows", cols)] = base(16, n).offsets()
				halves := base(20, 1).biases()
				halves.Bias = asHalves(halves.bias)
				out[name("regular unsigned %d bias", cols)] = halves
				out[name("regular unsigned %d wide bias", cols)] = base(21, 1).biases()
				out[name("regular unsigned %d bf16 bias", cols)] = base(22, 1).biases().rounded(RoundToBF16)
				if bits > 1 {
					out[name("regular signed %d", cols)] = base(17, 1).signed()
					out[name("regular signed %d rows", cols)] = base(18, n).signed()
					out[name("regular signed %d offset", cols)] = base(19, 1).signed().offsets()
				}
			}
			// Some products overflow fp16.
			large := randomPacked(13, n, k, bits, 1).scaled(1, k, true).rounded(RoundToF16)
			for i := range large.scale {
				large.scale[i] *= 3e4
			}
			out[name("large")] = large
			out[name("one scale")] = randomPacked(11, n, k, bits, 1).scaled(n, k, false).rounded(RoundToF16)
			if n%7 == 0 {
				out[name("blocks of 7 rows")] = randomPacked(12, n, k, bits, 1).scaled(7, k, false).rounded(RoundToF16).offsets()
			}
		}
	}
	return out
}

func TestPackedRows(t *testing.T) {
	all := packedCases()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		want := make([]float32, p.N*p.K)
		for i := range want {
			want[i] = p.number(i/p.K, i%p.K)
		}
		if err := p.Prepare(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, l := range levels {
			func() {
				defer func(old *level) { cur = old }(cur)
				cur = l
				got := make([]float32, len(want)+1)
				got[len(want)] = 12345
				p.Rows(got, 0, p.N)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%s %s [%d,%d]: %v, want %v", l.name, name, i/p.K, i%p.K, got[i], want[i])
					}
				}
				if got[len(want)] != 12345 {
					t.Fatalf("%s %s: wrote beyond the rows", l.name, name)
				}
				one := make([]float32, p.K)
				for r := range p.N {
					p.Rows(one, r, 1)
					for c, v := range one {
						if math.Float32bits(v) != math.Float32bits(want[r*p.K+c]) {
							t.Fatalf("%s %s: row %d alone [%d]: %v, want %v", l.name, name, r, c, v, want[r*p.K+c])
						}
					}
				}
			}()
		}
	}
}

// Products are those of the decoded matrix, bit for bit, whatever part of it
// is multiplied by however many rows.
func TestPackedMul(t *testing.T) {
	all := packedCases()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		if err := p.Prepare(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, l := range levels {
			func() {
				defer func(old *level) { cur = old }(cur)
				cur = l
				const rows, gap = 3, 2
				ldx, ldd := p.K+gap, p.N+gap
				x := numbers(14, rows*ldx)
				w := make([]float32, p.N*p.K)
				p.Rows(w, 0, p.N)
				want := make([]float32, rows*ldd)
				MulF32(want, ldd, x, ldx, rows, w, p.K, p.N, p.K)
				for _, tn := range [][3]int{{1, 0, p.N}, {3, 0, p.N}, {1, p.N / 3, p.N - p.N/3}, {1, p.N - 1, 1}, {2, p.N / 2, 1}} {
					m, from, n := tn[0], tn[1], tn[2]
					got := make([]float32, m*ldd)
					for i := range got {
						got[i] = 12345
					}
					p.Mul(got, ldd, x, ldx, m, from, n)
					for i := range got {
						r, j := i/ldd, i%ldd
						ref := float32(12345)
						if j < n {
							ref = want[r*ldd+from+j]
						}
						if math.Float32bits(got[i]) != math.Float32bits(ref) {
							t.Fatalf("%s %s %v [%d,%d]: %v, want %v", l.name, name, tn, r, j, got[i], ref)
						}
					}
				}
			}()
		}
	}
}

func TestPackedRefusesWhatIsNotThere(t *testing.T) {
	good := func() *plainPacked { return randomPacked(1, 4, 32, 4, 1).scaled(1, 16, false) }
	for name, change := range map[string]func(p *plainPacked){
		"no bits":           func(p *plainPacked) { p.Bits = 0 },
		"nine bits":         func(p *plainPacked) { p.Bits = 9 },
		"no rows":           func(p *plainPacked) { p.N = 0 },
		"short codes":       func(p *plainPacked) { p.Codes = p.Codes[1:] },
		"short scales":      func(p *plainPacked) { p.Scale.F16 = p.Scale.F16[1:] },
		"no scale":          func(p *plainPacked) { p.Scale, p.Bias = Numbers{}, Numbers{F32: make([]float32, 8)} },
		"uneven blocks":     func(p *plainPacked) { p.Block = 20 },
		"offset and bias":   func(p *plainPacked) { p.Offset, p.Bias = p.Scale, p.Scale },
		"short table":       func(p *plainPacked) { p.Table, p.TableRows = Numbers{F32: make([]float32, 15)}, 4 },
		"table and sign":    func(p *plainPacked) { p.tables(4, false).signed() },
		"vector, no table":  func(p *plainPacked) { p.Vector = 2 },
		"vectors of blocks": func(p *plainPacked) { p.tables(4, false); p.Vector = 2 },
	} {
		p := good()
		if err := p.Prepare(); err != nil {
			t.Fatal(err)
		}
		change(p)
		if err := p.Prepare(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPackedMulDoesNotAllocate(t *testing.T) {
	for _, p := range []*plainPacked{
		randomPacked(1, 64, 64, 4, 1).signed().scaled(1, 32, false).rounded(RoundToF16).offsets(),
		randomPacked(1, 64, 64, 4, 1).scaled(1, 32, false).rounded(RoundToF16).regular().offsets(),
		randomPacked(1, 64, 64, 8, 1).signed().scaled(1, 64, false).rounded(RoundToF16),
		randomPacked(1, 64, 64, 4, 1).tables(32, false),
		randomPacked(1, 64, 64, 8, 1).tables(64, false),
	} {
		if err := p.Prepare(); err != nil {
			t.Fatal(err)
		}
		x, d := numbers(1, p.K), make([]float32, p.N)
		t.Run(fmt.Sprint("form ", p.form), func(t *testing.T) {
			alloctest.Zero(t, 100, func() { p.Mul(d, p.N, x, p.K, 1, 0, p.N) })
		})
	}
}

// packedBenchmarks are layers as decoders have them.
func packedBenchmarks() map[string]*plainPacked {
	const n, k = 16384, 640
	return map[string]*plainPacked{
		"int8 channel":    randomPacked(1, n, k, 8, 1).signed().scaled(1, k, false).rounded(RoundToF16).regular(),
		"int8 block32":    randomPacked(1, n, k, 8, 1).signed().scaled(1, 32, false).rounded(RoundToF16).regular(),
		"int4 block32":    randomPacked(1, n, k, 4, 1).signed().scaled(1, 32, false).rounded(RoundToF16).regular(),
		"uint4 block32":   randomPacked(1, n, k, 4, 1).scaled(1, 32, false).rounded(RoundToF16).regular().offsets(),
		"int4 block128":   randomPacked(1, n, k, 4, 1).signed().scaled(1, 128, false).rounded(RoundToF16).regular(),
		"int4 channel":    randomPacked(1, n, k, 4, 1).signed().scaled(1, k, false).rounded(RoundToF16).regular(),
		"lut1 tensor":     randomPacked(1, n, k, 1, 1).tables(n, false),
		"lut2 tensor":     randomPacked(1, n, k, 2, 1).tables(n, false),
		"lut3 tensor":     randomPacked(1, n, k, 3, 1).tables(n, false),
		"lut4 tensor":     randomPacked(1, n, k, 4, 1).tables(n, false),
		"lut4 group32":    randomPacked(1, n, k, 4, 1).tables(32, false),
		"lut4 vector2":    randomPacked(1, n/2, k, 4, 2).tables(n/2, false),
		"lut6 tensor":     randomPacked(1, n, k, 6, 1).tables(n, false),
		"lut8 tensor":     randomPacked(1, n, k, 8, 1).tables(n, false),
		"affine4 group64": randomPacked(1, n, k, 4, 1).scaled(1, 64, false).rounded(RoundToBF16).regular().biases(),
		"affine6 group64": randomPacked(1, n, k, 6, 1).scaled(1, 64, false).rounded(RoundToBF16).regular().biases(),
		"affine8 group64": randomPacked(1, n, k, 8, 1).scaled(1, 64, false).rounded(RoundToBF16).regular().biases(),
	}
}

func BenchmarkPackedGEMV(b *testing.B) {
	for name, p := range packedBenchmarks() {
		if err := p.Prepare(); err != nil {
			b.Fatal(err)
		}
		x, d := numbers(1, p.K), make([]float32, p.N)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p.Codes) + 2*len(p.scale)))
			for b.Loop() {
				p.Mul(d, p.N, x, p.K, 1, 0, p.N)
			}
			b.ReportMetric(float64(p.N*p.K)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gweights/s")
		})
	}
}

func BenchmarkPackedDecode(b *testing.B) {
	for name, p := range packedBenchmarks() {
		if err := p.Prepare(); err != nil {
			b.Fatal(err)
		}
		d := make([]float32, 32*p.K)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p.Rows(d, 64, 32)
			}
			b.ReportMetric(float64(32*p.K)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gweights/s")
		})
	}
}
