package parity

import (
	"context"
	"errors"

	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/runtime"
)

var errStop = errors.New("parity: stop here")

// bisectStep repeats the mixed walk up to the row that was wrong and finds the
// first intermediate of its call that differs: from the reference, or without
// one from straight prefill.
func (s *Subject) bisectStep(ctx context.Context, mode runtime.Mode, ids []int32, sweep []int, f *step) (*Finding, error) {
	long := &Recording{IDs: ids, Vocab: s.Contract.Model.Vocab, Positions: make([]Position, len(ids))}
	var want siteRows
	var err error
	if s.Reference != nil && !s.large {
		want, err = s.referenceSites(ctx, long, f.position, f.position+1)
	} else {
		want, _, err = s.graphSites(ctx, long, mode, s.quickest(), f.position, f.position+1)
	}
	if err != nil {
		return nil, err
	}
	h, err := s.Host(mode)
	if err != nil {
		return nil, err
	}
	c := s.newCollector(h, f.position, f.position+1)
	c.anew = true
	h.Watch(c.watcher())
	defer h.Watch(Watcher{})
	err = s.mixed(h, ids, sweep, max(1, largest(s.Contract, ViaVerify)), func(what string, r engine.Row) error {
		if what == f.via && r.Position == f.position {
			return errStop
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		return nil, err
	}
	if found := s.first(want, c.rows, c.where, mode); found != nil {
		return found, nil
	}
	return &Finding{Function: f.via, Layer: -1, Position: f.position, Mode: mode.String()}, nil
}

// bisectDrafts finds the first intermediate of row i of a verify call at the
// session's position that another block of drafts changes.
func (s *Subject) bisectDrafts(h Host, block, other []int32, i int) (*Finding, error) {
	p := h.Pos() + i
	var rows [2]siteRows
	var where map[string]place
	for k, ids := range [][]int32{block, other} {
		c := s.newCollector(h, p, p+1)
		h.Watch(c.watcher())
		_, err := h.Verify(ids)
		h.Watch(Watcher{})
		if err != nil {
			return nil, err
		}
		rows[k], where = c.rows, c.where
	}
	for _, site := range sites(s.Contract.Model.Layers) {
		d, ok := deviation(site.Name, rows[0][site.Name], rows[1][site.Name])
		if !ok || d.MaxAbs == 0 {
			continue
		}
		at := where[site.Name]
		return &Finding{Chunk: at.chunk, Function: at.function, Layer: site.Layer, Site: site.Name, Position: p,
			Relative: d.Relative, MaxAbs: d.MaxAbs, Hint: "look at the mask of verify and at what the host leaves in the cache"}, nil
	}
	return nil, nil
}
