package faults

import (
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/runtime"
)

// cacheFaults are mistakes of the code that commits, hands over and counts.
func cacheFaults() []Fault {
	return []Fault{
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
			Name: "handoff-missing", Family: HostSide, Gates: []string{"kv", "functions"}, Sites: []string{"attn_ctx", "k", "v"},
			What:    "decode after prefill starts with an empty cache",
			Applies: all(tensorKV, prefills),
			host: spoiling(func(k *call) {
				if k.f.Kind == chunking.Decode && k.before == chunking.Prefill {
					for p := range k.pos {
						k.clearSlot(p)
					}
				}
			}),
		},
		{
			Name: "shared-keys-not-handed-over", Family: HostSide, Gates: anyLogits, Sites: []string{"attn_ctx"}, Form: formTwo,
			What:    "later chunks get empty keys in place of those that an earlier one lends",
			Applies: func(c *chunking.Contract) bool { return tensorKV(c) && lends(c) },
			host: spoiling(func(k *call) {
				for _, r := range []models.Role{models.SharedKeys, models.SharedNewKeys} {
					k.ports(r, func(_ *chunking.Port, _ chunking.Attn, t *runtime.Tensor) { t.F = make([]float32, len(t.F)) })
				}
			}),
		},
		{
			Name: "padding-committed", Family: HostSide, Gates: []string{"kv", "functions", "positions", "window"}, Sites: []string{"attn_ctx", "k", "v"},
			What:    "prefill writes the rows of its padding, too, and pushes old keys out of the ring",
			Applies: all(tensorKV, prefills, sliding),
			host: func(e *engine.Engine) parity.Host {
				end := map[string]int{}
				return spoiling(func(k *call) {
					for p := k.pos; p < end[k.chunk]; p++ {
						k.clearSlot(p)
					}
					if end[k.chunk] = 0; k.f.Kind == chunking.Prefill {
						end[k.chunk] = k.pos + k.f.T
					}
				})(e)
			},
		},
		{
			Name: "drafts-written-early", Family: HostSide, Gates: []string{"drafts"}, Says: "changes when the drafts after row",
			What:    "verify leaves its drafts in the cache, accepted or not",
			Applies: all(tensorKV, verifies, sliding),
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
			Name: "write-through", Family: HostSide, Gates: []string{"drafts", "kv"}, Sites: []string{"attn_ctx", "k", "v"}, Form: formApp, Applies: verifies,
			What:  "verify writes drafts into shifting caches before any is accepted",
			Cause: "verify leaves its drafts in the cache, accepted or not",
			host:  parity.NewWriteThroughHost,
		},
		{
			Name: "commit-all-drafts", Family: HostSide, Gates: []string{"kv"}, Says: "with 2 accepted leaves the sequence at", Applies: verifies,
			What: "all tokens of a verify block are committed, not the accepted ones",
			host: func(e *engine.Engine) parity.Host {
				return committing{parity.NewHost(e), func(_, all int) int { return all }}
			},
		},
		{
			Name: "commit-one-less", Family: HostSide, Gates: append([]string{"kv"}, verifyLogits...), Applies: verifies, Says: "position",
			What: "the last accepted token of a verify block is not committed",
			host: func(e *engine.Engine) parity.Host {
				return committing{parity.NewHost(e), func(n, _ int) int { return max(n-1, 1) }}
			},
		},
		{
			Name: "label-shift", Family: HostSide, Gates: anyLogits, Sites: []string{"logits"},
			What: "the row of a token is taken for the row of the next",
			host: func(e *engine.Engine) parity.Host { return &shifted{Host: parity.NewHost(e)} },
		},
	}
}

// lends reports whether a chunk reads keys of an earlier one.
func lends(c *chunking.Contract) bool {
	for _, ch := range c.Chunks {
		if chunking.Find(ch.Functions[0].Inputs, models.SharedKeys, "") != nil {
			return true
		}
	}
	return false
}

// committing commits another number of tokens than it is told.
type committing struct {
	parity.Host
	count func(n, all int) int
}

type miscounted struct {
	parity.Block
	count func(n, all int) int
}

func (h committing) Verify(ids []int32) (parity.Block, error) {
	b, err := h.Host.Verify(ids)
	if err != nil {
		return nil, err
	}
	return miscounted{b, h.count}, nil
}

func (b miscounted) Commit(n int) error { return b.Block.Commit(b.count(n, len(b.Rows()))) }

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
