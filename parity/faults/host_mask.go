package faults

import (
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// unblock makes one key visible to query q.
func unblock(t *runtime.Tensor, q, column int) {
	width := t.Shape[3]
	t.F[q*width+column] = 0
}

// masks calls do for every mask of a call; window is that of its kind.
func (k *call) masks(do func(a chunking.Attn, t *runtime.Tensor)) {
	k.ports(models.Mask, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) { do(a, t) })
}

// openCache lets sliding layers see all of their cache.
func openCache(k *call) {
	k.masks(func(a chunking.Attn, t *runtime.Tensor) {
		if a.Window == 0 {
			return
		}
		for q := range k.f.T {
			for s := range min(a.Slots, k.pos) {
				unblock(t, q, s)
			}
		}
	})
}

// maskFaults are mistakes of the code that fills masks.
func maskFaults() []Fault {
	return []Fault{
		{
			Name: "verify-mask-leak", Family: HostSide, Gates: verifyLogits, Sites: []string{"attn_ctx"}, Applies: verifies,
			What: "tokens of a verify block see the draft behind them",
			host: spoiling(func(k *call) {
				if k.f.Kind != chunking.Verify {
					return
				}
				k.masks(func(a chunking.Attn, t *runtime.Tensor) {
					for q := range k.f.T - 1 {
						unblock(t, q, a.Slots+q+1)
					}
				})
			}),
		},
		{
			Name: "verify-mask-of-unchanged-cache", Family: HostSide, Gates: verifyLogits, Sites: []string{"attn_ctx"}, Form: formApp, Applies: all(verifies, sliding),
			What: "verify's sliding mask is that of a cache which does not move: it shows drafts behind and hides the oldest keys",
			host: spoiling(func(k *call) {
				if k.f.Kind != chunking.Verify {
					return
				}
				k.masks(func(a chunking.Attn, t *runtime.Tensor) {
					if a.Layout != chunking.Shift {
						return
					}
					w := t.Shape[3]
					for q := range k.f.T {
						row := t.F[q*w : (q+1)*w]
						copy(row[k.f.T:], append([]float32(nil), row[:w-k.f.T]...))
						for i := range k.f.T {
							row[i] = float32(k.c.Mask.Blocked)
						}
					}
				})
			}),
		},
		{
			Name: "mask-sees-empty-slots", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What: "queries attend to the first cache slot that is still empty",
			host: spoiling(func(k *call) {
				k.masks(func(a chunking.Attn, t *runtime.Tensor) {
					if k.pos < a.Slots {
						for q := range k.f.T {
							unblock(t, q, k.pos)
						}
					}
				})
			}),
		},
		{
			Name: "mask-hides-itself", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What: "queries do not see their own key once there are others",
			host: spoiling(func(k *call) {
				if k.pos == 0 {
					return
				}
				k.masks(func(a chunking.Attn, t *runtime.Tensor) {
					for q := range k.f.T {
						t.F[q*t.Shape[3]+a.Slots+q] = float32(k.c.Mask.Blocked)
					}
				})
			}),
		},
		{
			Name: "first-token-hidden", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What: "the mask of full layers hides position 0, the BOS",
			host: spoiling(func(k *call) {
				k.masks(func(a chunking.Attn, t *runtime.Tensor) {
					if a.Window != 0 {
						return
					}
					for q := range k.f.T {
						switch {
						case k.pos > 0:
							t.F[q*t.Shape[3]] = float32(k.c.Mask.Blocked)
						case q > 0:
							t.F[q*t.Shape[3]+a.Slots] = float32(k.c.Mask.Blocked)
						}
					}
				})
			}),
		},
		{
			Name: "window-plus-one", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"}, Applies: sliding,
			What: "sliding layers see one key more than their window",
			host: spoiling(func(k *call) {
				k.masks(func(a chunking.Attn, t *runtime.Tensor) {
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
				k.masks(func(a chunking.Attn, t *runtime.Tensor) {
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
			Name: "prefill-without-window", Family: HostSide, Gates: prefillLogits, Sites: []string{"attn_ctx"}, Applies: all(sliding, prefills),
			What: "prefill lets sliding layers see all of the cache",
			host: spoiling(func(k *call) {
				if k.f.Kind == chunking.Prefill {
					openCache(k)
				}
			}),
		},
		{
			Name: "verify-without-window", Family: HostSide, Gates: verifyLogits, Sites: []string{"attn_ctx"}, Applies: all(sliding, verifies),
			What: "verify lets sliding layers see all of the cache",
			host: spoiling(func(k *call) {
				if k.f.Kind == chunking.Verify {
					openCache(k)
				}
			}),
		},
		{
			Name: "cache-mask-left-aligned", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"}, Form: formApp, Applies: sliding,
			What: "the mask of a right-aligned sliding cache is left-aligned",
			host: spoiling(func(k *call) {
				if k.f.Kind != chunking.Decode {
					return
				}
				k.masks(func(a chunking.Attn, t *runtime.Tensor) {
					if a.Layout != chunking.Shift {
						return
					}
					for i := range t.F {
						if t.F[i] = float32(k.c.Mask.Blocked); i <= k.pos {
							t.F[i] = 0
						}
					}
				})
			}),
		},
		{
			Name: "update-slot-off-by-one", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"}, Form: formState,
			What: "decode writes keys and values one slot too far",
			host: spoiling(func(k *call) {
				k.ports(models.WritePos, func(_ *chunking.Port, a chunking.Attn, t *runtime.Tensor) {
					if k.f.Kind == chunking.Decode {
						t.I[0] = (t.I[0] + 1) % int32(a.Slots)
					}
				})
			}),
		},
		{
			Name: "update-mask-off-by-one", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"}, Form: formApp,
			What: "the update mask writes full layers' keys one slot too far",
			host: spoiling(func(k *call) {
				k.ports(models.WriteOneHot, func(_ *chunking.Port, _ chunking.Attn, t *runtime.Tensor) {
					w := t.Shape[3]
					last := append([]float32(nil), t.F[len(t.F)-w:]...)
					copy(t.F[w:], append([]float32(nil), t.F[:len(t.F)-w]...))
					copy(t.F, last)
				})
			}),
		},
	}
}
