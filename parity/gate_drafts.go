package parity

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/engine"
)

// draftsGate checks that drafts cannot reach back.
func draftsGate() Gate {
	return Gate{
		ID:     "drafts",
		Proves: "what verify says after a token does not depend on the drafts behind it, to the last bit",
		Skip: func(s *Subject) string {
			if !s.has(ViaVerify) {
				return "the bundle has no verify function"
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			mode := s.modes()[len(s.modes())-1]
			h, err := s.Host(mode)
			if err != nil {
				return nil, err
			}
			K, vocab := largest(s.Contract, ViaVerify), s.Contract.Model.Vocab
			blocks, rows := 0, 0
			for _, p := range s.sweep(K) {
				ids := s.extended(p + K)
				if err := feed(ctx, h, s.Contract, s.quickest(), ids[h.Pos():p], func(engine.Row) error { return nil }); err != nil {
					return nil, err
				}
				block := ids[p : p+K]
				want, err := verifyRows(h, block)
				if err != nil {
					return nil, err
				}
				for t := range K - 1 {
					// The same tokens up to t, others behind; and none behind.
					other := slices.Clone(block)
					for i := t + 1; i < K; i++ {
						other[i] = int32((int(other[i]) + 1 + vocab/2) % vocab)
					}
					for _, b := range [][]int32{other, block[:t+1]} {
						got, err := verifyRows(h, b)
						if err != nil {
							return nil, err
						}
						for i := range t + 1 {
							if diff := rowDiffers(want[i], got[i]); diff != "" {
								res.fail("verify at position %d: row %d changes when the drafts after row %d change: %s", p, i, t, diff)
								if res.Finding == nil {
									if res.Finding, err = s.bisectDrafts(h, block, b, i); err != nil {
										return nil, err
									}
									if res.Finding == nil {
										res.Finding = &Finding{Function: string(ViaVerify), Layer: -1, Position: p + i}
									}
								}
							}
						}
						rows += t + 1
						blocks++
					}
				}
			}
			res.note("blocks", float64(blocks))
			res.note("rows_compared", float64(rows))
			return res, nil
		},
	}
}

// verifyRows copies the rows of a verify call and commits nothing.
func verifyRows(h Host, ids []int32) ([]engine.Row, error) {
	b, err := h.Verify(ids)
	if err != nil {
		return nil, err
	}
	rows := b.Rows()
	out := make([]engine.Row, len(rows))
	for i, r := range rows {
		r.Logits, r.Hidden = slices.Clone(r.Logits), slices.Clone(r.Hidden)
		out[i] = r
	}
	return out, nil
}

// rowDiffers says how two rows differ in any bit; "" if they do not.
func rowDiffers(a, b engine.Row) string {
	if a.Token != b.Token || math.Float32bits(a.TokenLogit) != math.Float32bits(b.TokenLogit) {
		return fmt.Sprintf("token %d (%s) became %d (%s)", a.Token, short(float64(a.TokenLogit)), b.Token, short(float64(b.TokenLogit)))
	}
	for _, v := range []struct {
		what string
		a, b []float32
	}{{"logit", a.Logits, b.Logits}, {"hidden state", a.Hidden, b.Hidden}} {
		for i := range v.a {
			if math.Float32bits(v.a[i]) != math.Float32bits(v.b[i]) {
				return fmt.Sprintf("%s %d became %s, was %s", v.what, i, short(float64(v.b[i])), short(float64(v.a[i])))
			}
		}
	}
	return ""
}

// sweep are the positions at which caches begin, fill, wrap and end, with
// room for a block of n tokens: 0, 1, W-1, W, W+1, 2W, C-n; W is the window,
// or the length of a prefill where nothing slides. Large bundles stop past
// 2W.
func (s *Subject) sweep(n int) []int {
	c := s.Contract
	w := s.window()
	if w == 0 {
		w = largest(c, ViaPrefill)
	}
	limit := c.Context - n
	if s.large {
		limit = min(limit, max(len(s.longest().IDs), 2*w+1))
	}
	set := []int{0, 1, 2*w + 1}
	if w > 0 {
		set = append(set, w-1, w, w+1, 2*w)
	}
	set = append(set, limit)
	slices.Sort(set)
	set = slices.Compact(set)
	return slices.DeleteFunc(set, func(p int) bool { return p < 0 || p > limit })
}
