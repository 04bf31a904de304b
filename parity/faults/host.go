package faults

import (
	"math"
	"strings"

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
	w.spoil(&call{c: w.c, f: f, in: in, pos: w.Pos(), before: w.before, chunk: ch.Name})
	if w.watch != nil {
		w.watch(ch, f, in)
	}
}

// unblock makes one key visible to query q.
func unblock(t *runtime.Tensor, q, column int) {
	width := t.Shape[3]
	t.F[q*width+column] = 0
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
		for row := range t.Shape[0] * t.Shape[1] {
			at := (row*t.Shape[2] + s) * d
			clear(t.F[at : at+d])
		}
	}
	k.ports(models.KeyCache, wipe)
	k.ports(models.ValueCache, wipe)
}

func tensorKV(c *chunking.Contract) bool { return c.KV == chunking.KVTensor }

func verifyTensor(c *chunking.Contract) bool { return tensorKV(c) && verifies(c) }

// hostFaults are mistakes of the code that drives a good bundle.
func hostFaults() []Fault {
	return []Fault{
		{
			Name: "host-theta", Family: HostSide, Gates: anyLogits, Sites: []string{"q"},
			What: "the host computes RoPE rows with twice the theta",
			host: spoiling(func(k *call) {
				rows := func(fn func(float64) float64) func(*chunking.Port, chunking.Attn, *runtime.Tensor) {
					return func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
						freq := doubleTheta(a.InvFreq)
						for q := range k.f.T {
							for i, f := range freq {
								v := float32(fn(float64(float32(k.pos+q) * f)))
								at := q * 2 * len(freq)
								t.F[at+i], t.F[at+len(freq)+i] = v, v
							}
						}
					}
				}
				k.ports(models.RopeCos, rows(math.Cos))
				k.ports(models.RopeSin, rows(math.Sin))
			}),
		},
		{
			Name: "rope-row-frozen", Family: HostSide, Gates: []string{"logits.fp32.prefill", "logits.typed.prefill"}, Sites: []string{"q"}, Applies: prefills,
			What: "all tokens of a block get the RoPE row of the first",
			host: spoiling(func(k *call) {
				freeze := func(_ *chunking.Port, _ chunking.Attn, t *runtime.Tensor) {
					d := t.Shape[3]
					for q := 1; q < k.f.T; q++ {
						copy(t.F[q*d:(q+1)*d], t.F[:d])
					}
				}
				k.ports(models.RopeCos, freeze)
				k.ports(models.RopeSin, freeze)
			}),
		},
		{
			Name: "rope-row-off-by-one-in-decode", Family: HostSide, Gates: []string{"layers", "kv", "functions"}, Applies: prefills,
			What: "decode takes the RoPE row of the next position, prefill the right one",
			host: spoiling(func(k *call) {
				if k.f.Kind != chunking.Decode {
					return
				}
				shift := func(fn func(float64) float64) func(*chunking.Port, chunking.Attn, *runtime.Tensor) {
					return func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
						for i, f := range a.InvFreq {
							v := float32(fn(float64(float32(k.pos+1) * f)))
							t.F[i], t.F[len(a.InvFreq)+i] = v, v
						}
					}
				}
				k.ports(models.RopeCos, shift(math.Cos))
				k.ports(models.RopeSin, shift(math.Sin))
			}),
		},
		{
			Name: "verify-mask-leak", Family: HostSide, Gates: verifyLogits, Sites: []string{"attn_ctx"}, Applies: verifies,
			What: "tokens of a verify block see the draft behind them",
			host: spoiling(func(k *call) {
				if k.f.Kind != chunking.Verify {
					return
				}
				k.ports(models.Mask, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
					for q := range k.f.T - 1 {
						unblock(t, q, a.Slots+q+1)
					}
				})
			}),
		},
		{
			Name: "mask-sees-empty-slots", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What: "queries attend to the first cache slot that is still empty",
			host: spoiling(func(k *call) {
				k.ports(models.Mask, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
					if k.pos < a.Slots {
						for q := range k.f.T {
							unblock(t, q, k.pos)
						}
					}
				})
			}),
		},
		{
			Name: "window-plus-one", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"}, Applies: sliding,
			What: "sliding layers see one key more than their window",
			host: spoiling(func(k *call) {
				k.ports(models.Mask, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
					if a.Window == 0 {
						return
					}
					for q := range k.f.T {
						p := k.pos + q - a.Window
						if p >= k.pos {
							unblock(t, q, a.Slots+p-k.pos)
						} else if p >= 0 && p >= k.pos-a.Slots {
							unblock(t, q, slotOf(a, p))
						}
					}
				})
			}),
		},
		{
			Name: "window-minus-one", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"}, Applies: sliding,
			What: "sliding layers see one key less than their window",
			host: spoiling(func(k *call) {
				k.ports(models.Mask, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
					if a.Window == 0 {
						return
					}
					for q := range k.f.T {
						p := k.pos + q - a.Window + 1
						column := a.Slots + p - k.pos
						if p < k.pos {
							column = slotOf(a, max(p, 0))
						}
						if p >= 0 {
							t.F[q*t.Shape[3]+column] = float32(k.c.Mask.Blocked)
						}
					}
				})
			}),
		},
		{
			Name: "prefill-without-window", Family: HostSide, Gates: prefillLogits, Sites: []string{"attn_ctx"},
			What:    "prefill lets sliding layers see all of the cache",
			Applies: func(c *chunking.Contract) bool { return sliding(c) && prefills(c) },
			host: spoiling(func(k *call) {
				if k.f.Kind != chunking.Prefill {
					return
				}
				k.ports(models.Mask, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
					if a.Window == 0 {
						return
					}
					for q := range k.f.T {
						for s := range min(a.Slots, k.pos) {
							unblock(t, q, s)
						}
					}
				})
			}),
		},
		{
			Name: "newest-slot-lost", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"}, Applies: tensorKV,
			What: "the key of the newest token is not written",
			host: spoiling(func(k *call) {
				if k.pos > 0 {
					k.clearSlot(k.pos - 1)
				}
			}),
		},
		{
			Name: "handoff-missing", Family: HostSide, Gates: []string{"kv", "functions"},
			What:    "decode after prefill starts with an empty cache",
			Applies: func(c *chunking.Contract) bool { return tensorKV(c) && prefills(c) },
			host: spoiling(func(k *call) {
				if k.f.Kind == chunking.Decode && k.before == chunking.Prefill {
					for p := range k.pos {
						k.clearSlot(p)
					}
				}
			}),
		},
		{
			Name: "drafts-written-early", Family: HostSide, Gates: []string{"drafts"},
			What:    "verify leaves its drafts in the cache, accepted or not",
			Applies: func(c *chunking.Contract) bool { return verifyTensor(c) && sliding(c) },
			host: func(e *engine.Engine) parity.Host {
				drafts := map[string]int{} // end of the last verify block, by chunk
				return spoiling(func(k *call) {
					// What the ring held in the slots of rejected drafts is
					// still inside the window.
					for p := k.pos; p < drafts[k.chunk]; p++ {
						k.clearSlot(p)
					}
					if drafts[k.chunk] = 0; k.f.Kind == chunking.Verify {
						drafts[k.chunk] = k.pos + k.f.T
					}
				})(e)
			},
		},
		{
			Name: "commit-all-drafts", Family: HostSide, Gates: []string{"kv"}, Applies: verifies,
			What: "all tokens of a verify block are committed, not the accepted ones",
			host: func(e *engine.Engine) parity.Host { return greedyCommit{parity.NewHost(e)} },
		},
		{
			Name: "label-shift", Family: HostSide, Gates: anyLogits,
			What: "the row of a token is taken for the row of the next",
			host: func(e *engine.Engine) parity.Host { return &shifted{Host: parity.NewHost(e)} },
		},
	}
}

// greedyCommit commits everything.
type greedyCommit struct{ parity.Host }

type allOf struct{ parity.Block }

func (h greedyCommit) Verify(ids []int32) (parity.Block, error) {
	b, err := h.Host.Verify(ids)
	if err != nil {
		return nil, err
	}
	return allOf{b}, nil
}

func (b allOf) Commit(int) error { return b.Block.Commit(len(b.Rows())) }

// shifted returns rows one call late.
type shifted struct {
	parity.Host
	last engine.Row
}

func (h *shifted) Decode(id int32) (engine.Row, error) {
	row, err := h.Host.Decode(id)
	if err != nil {
		return row, err
	}
	row.Logits = append([]float32(nil), row.Logits...)
	out := h.last
	if h.last.Logits == nil {
		out = row
	}
	h.last = row
	out.Position = row.Position
	return out, nil
}

// localized reports whether bisection named one of the sites.
func localized(f *parity.Finding, sites []string) bool {
	if f == nil {
		return false
	}
	site := f.Site[strings.LastIndex(f.Site, ".")+1:]
	for _, s := range sites {
		if s == site {
			return true
		}
	}
	return false
}
