package faults

import (
	"math"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/runtime"
)

func pow2(x float64) float64 { return math.Exp2(x) }

// call is what a wrong host can spoil: the inputs of one call.
type call struct {
	c      *chunking.Contract
	f      *chunking.Function
	in     map[string]*runtime.Tensor
	pos    int
	before chunking.FunctionKind // kind of the call before this one; "" at the start
	chunk  string
	first  bool // the first chunk
}

// ports calls do for every input with the role.
func (k *call) ports(r models.Role, do func(p *chunking.Port, a chunking.Attn, t *runtime.Tensor)) {
	for i := range k.f.Inputs {
		p := &k.f.Inputs[i]
		if p.Role == r {
			do(p, k.c.Attention[p.Kind], k.in[p.Name])
		}
	}
}

// wrong is a host that spoils inputs and, optionally, what comes back.
type wrong struct {
	parity.Host
	c      *chunking.Contract
	spoil  func(*call)
	watch  parity.Inputs
	before chunking.FunctionKind
	now    chunking.FunctionKind
}

// spoiling makes hosts that change the inputs of calls.
func spoiling(spoil func(*call)) func(*engine.Engine) parity.Host {
	return func(e *engine.Engine) parity.Host {
		w := &wrong{Host: parity.NewHost(e), c: e.Contract(), spoil: spoil}
		w.Watch(parity.Watcher{})
		return w
	}
}

// Watch keeps the fault in place under a watcher.
func (w *wrong) Watch(x parity.Watcher) {
	w.watch = x.Inputs
	x.Inputs = w.inputs
	w.Host.Watch(x)
}

func (w *wrong) inputs(ch *chunking.Chunk, f *chunking.Function, in map[string]*runtime.Tensor) {
	if ch.First == 0 {
		w.before, w.now = w.now, f.Kind
	}
	w.spoil(&call{c: w.c, f: f, in: in, pos: w.Pos(), before: w.before, chunk: ch.Name, first: ch.First == 0})
	if w.watch != nil {
		w.watch(ch, f, in)
	}
}

// slotOf is the cache slot of a position.
func slotOf(a chunking.Attn, p int) int {
	if a.Layout == chunking.Ring {
		return p % a.Slots
	}
	return p
}

// clearSlot zeroes the keys and values of a slot.
func (k *call) clearSlot(p int) {
	wipe := func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
		s, d := slotOf(a, p), t.Shape[3]
		if s >= t.Shape[2] {
			return // padding beyond the context
		}
		for row := range t.Shape[0] * t.Shape[1] {
			at := (row*t.Shape[2] + s) * d
			clear(t.F[at : at+d])
		}
	}
	k.ports(models.KeyCache, wipe)
	k.ports(models.ValueCache, wipe)
}

// hostFaults are mistakes of the code that looks rows up and turns them.
func hostFaults() []Fault {
	return []Fault{
		{
			Name: "host-theta", Family: HostSide, Gates: anyLogits, Sites: []string{"q"},
			What: "the host computes RoPE rows with twice the theta",
			host: turning(func(k *call, a chunking.Attn, q int) []float32 {
				return angles(doubleTheta(a.InvFreq), k.pos+q)
			}, nil),
		},
		{
			Name: "host-thetas-swapped", Family: HostSide, Gates: anyLogits, Sites: []string{"q"}, Applies: all(sliding, not(gemma4)),
			What: "the host gives sliding layers the RoPE rows of full ones, and the other way round", Cause: "the RoPE thetas of sliding and full layers are swapped",
			host: spoiling(func(k *call) {
				for _, r := range []models.Role{models.RopeCos, models.RopeSin} {
					fn := math.Cos
					if r == models.RopeSin {
						fn = math.Sin
					}
					k.ports(r, func(p *chunking.Port, _ chunking.Attn, t *runtime.Tensor) {
						other := models.Full
						if p.Kind == models.Full {
							other = models.Sliding
						}
						a, ok := k.c.Attention[other]
						if !ok {
							return
						}
						for q := range k.f.T {
							fillRow(t, q, angles(a.InvFreq, k.pos+q), fn)
						}
					})
				}
			}),
		},
		{
			Name: "rope-row-frozen", Family: HostSide, Gates: prefillLogits, Sites: []string{"q"}, Applies: prefills,
			What: "all tokens of a block get the RoPE row of the first",
			host: turning(func(k *call, a chunking.Attn, _ int) []float32 { return angles(a.InvFreq, k.pos) }, nil),
		},
		{
			Name: "rope-row-off-by-one-in-decode", Family: HostSide, Gates: []string{"kv", "functions", "layers"}, Sites: []string{"q", "k"}, Applies: prefills,
			What: "decode takes the RoPE row of the next position, prefill the right one",
			host: turning(func(k *call, a chunking.Attn, q int) []float32 { return angles(a.InvFreq, k.pos+q+1) }, kindIs(chunking.Decode)),
		},
		{
			Name: "rope-row-off-by-one-in-verify", Family: HostSide, Gates: []string{"kv", "functions", "layers"}, Sites: []string{"q", "k"}, Applies: verifies,
			What: "verify takes the RoPE row of the next position, decode the right one",
			host: turning(func(k *call, a chunking.Attn, q int) []float32 { return angles(a.InvFreq, k.pos+q+1) }, kindIs(chunking.Verify)),
		},
		{
			Name: "positions-restart", Family: HostSide, Gates: prefillLogits, Sites: []string{"q"}, Applies: prefills,
			What: "prefill counts positions from 0 at every call",
			host: turning(func(_ *call, a chunking.Attn, q int) []float32 { return angles(a.InvFreq, q) }, kindIs(chunking.Prefill)),
		},
		{
			Name: "cos-and-sin-swapped", Family: HostSide, Gates: anyLogits, Sites: []string{"q"},
			What: "the host passes sines as cosines and the other way round",
			host: spoiling(func(k *call) {
				k.ports(models.RopeCos, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
					for q := range k.f.T {
						fillRow(t, q, angles(a.InvFreq, k.pos+q), math.Sin)
					}
				})
				k.ports(models.RopeSin, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
					for q := range k.f.T {
						fillRow(t, q, angles(a.InvFreq, k.pos+q), math.Cos)
					}
				})
			}),
		},
		{
			Name: "host-rope-tail", Family: HostSide, Gates: anyLogits, Sites: []string{"q"}, Applies: gemma4,
			What: "the host turns the tail of full layers' heads, which is at rest", Cause: "RoPE turns the tail of full layers' heads, which is at rest",
			host: turning(func(k *call, a chunking.Attn, q int) []float32 { return angles(wholeTail(a.InvFreq), k.pos+q) }, nil),
		},
		{
			Name: "embedding-unscaled", Family: HostSide, Gates: anyLogits, Sites: []string{"embed"},
			What:    "embedding rows are fed without the factor √hidden",
			Applies: func(c *chunking.Contract) bool { return c.Embedding.Scale/c.ResidualScale != 1 },
			host:    scaledPort(models.HiddenIn, func(c *chunking.Contract) float64 { return c.ResidualScale / c.Embedding.Scale }),
		},
		{
			Name: "ids-off-by-one", Family: HostSide, Gates: anyLogits, Sites: []string{"embed"},
			What: "the host looks up the row of the next token id",
			host: func(e *engine.Engine) parity.Host { return nextID{parity.NewHost(e), int32(e.Contract().Model.Vocab)} },
		},
		{
			Name: "per-layer-unscaled", Family: HostSide, Gates: anyLogits, Sites: []string{"per_layer_token"}, Applies: gemma4,
			What: "rows of the per-layer table are fed without the factor √P (16 in E2B)",
			host: scaledPort(models.PerLayerRaw, func(c *chunking.Contract) float64 { return 1 / c.PerLayer.Scale }),
		},
		{
			Name: "per-layer-row-late", Family: HostSide, Gates: prefillLogits, Sites: []string{"per_layer_token"}, Applies: all(gemma4, prefills),
			What: "tokens of a block get the per-layer rows of the token before",
			host: spoiling(func(k *call) {
				k.ports(models.PerLayerRaw, func(_ *chunking.Port, _ chunking.Attn, t *runtime.Tensor) {
					w := t.Shape[2]
					copy(t.F[w:], append([]float32(nil), t.F[:len(t.F)-w]...))
				})
			}),
		},
	}
}

// nextID feeds the token behind the one it is given.
type nextID struct {
	parity.Host
	vocab int32
}

func (h nextID) next(ids []int32) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = (id + 1) % h.vocab
	}
	return out
}

func (h nextID) Decode(id int32) (engine.Row, error) { return h.Host.Decode((id + 1) % h.vocab) }

func (h nextID) Prefill(ids []int32, each func(engine.Row) error) (engine.Row, error) {
	return h.Host.Prefill(h.next(ids), each)
}

func (h nextID) Verify(ids []int32) (parity.Block, error) { return h.Host.Verify(h.next(ids)) }

// angles are position·frequency.
func angles(freq []float32, p int) []float32 {
	out := make([]float32, len(freq))
	for i, f := range freq {
		out[i] = float32(p) * f
	}
	return out
}

// fillRow writes a function of angles twice over.
func fillRow(t *runtime.Tensor, q int, angles []float32, fn func(float64) float64) {
	at := q * 2 * len(angles)
	for i, a := range angles {
		v := float32(fn(float64(a)))
		t.F[at+i], t.F[at+len(angles)+i] = v, v
	}
}

// turning makes hosts that turn token q of calls that when names by other
// angles.
func turning(by func(k *call, a chunking.Attn, q int) []float32, when func(*call) bool) func(*engine.Engine) parity.Host {
	return spoiling(func(k *call) {
		if when != nil && !when(k) {
			return
		}
		for r, fn := range map[models.Role]func(float64) float64{models.RopeCos: math.Cos, models.RopeSin: math.Sin} {
			k.ports(r, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
				for q := range k.f.T {
					fillRow(t, q, by(k, a, q), fn)
				}
			})
		}
	})
}

func kindIs(want chunking.FunctionKind) func(*call) bool {
	return func(k *call) bool { return k.f.Kind == want }
}

// scaledPort makes hosts that scale what the first chunk gets.
func scaledPort(role models.Role, by func(*chunking.Contract) float64) func(*engine.Engine) parity.Host {
	return spoiling(func(k *call) {
		if !k.first {
			return
		}
		f := float32(by(k.c))
		k.ports(role, func(_ *chunking.Port, _ chunking.Attn, t *runtime.Tensor) {
			for i := range t.F {
				t.F[i] *= f
			}
		})
	})
}

// doubleTheta turns θ^(-2i/d) into (2θ)^(-2i/d).
func doubleTheta(f []float32) []float32 {
	out := make([]float32, len(f))
	for i, v := range f {
		out[i] = v * float32(pow2(-float64(i)/float64(len(f))))
	}
	return out
}

// wholeTail continues frequencies that end in zeros as the whole head's would
// go on.
func wholeTail(f []float32) []float32 {
	out := append([]float32(nil), f...)
	for i := 2; i < len(f); i++ {
		if f[i] == 0 {
			out[i] = out[i-1] * (f[1] / f[0])
		}
	}
	return out
}
