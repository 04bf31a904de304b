package engine

import (
	"fmt"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// connect links an input of chunk i to what an earlier chunk has or returns.
// Inputs that the host fills by itself are left alone.
func (s *Session) connect(fd *feed, i int, p *chunking.Port, function string) error {
	switch p.Role {
	case models.HiddenIn:
		if i == 0 {
			return nil
		}
		return s.follow(fd, i-1, function, models.HiddenOut, p)
	case models.PerLayerIn:
		return s.follow(fd, 0, function, models.PerLayerOut, p)
	case models.SharedKeys, models.SharedValues, models.SharedNewKeys, models.SharedNewValues:
		return s.borrow(fd, i, function, p)
	}
	return nil
}

// follow links an input to the whole output that has the role.
func (s *Session) follow(fd *feed, from int, function string, role models.Role, p *chunking.Port) error {
	q := chunking.Find(s.e.chunks[from].decl.Function(function).Outputs, role, p.Kind)
	if q == nil {
		return fmt.Errorf("no output of %s has the role %s, which input %s needs", s.e.chunks[from].decl.Name, role, p.Name)
	}
	fd.chunk, fd.output, fd.lo, fd.hi = from, q.Name, 0, len(fd.t.F)
	if n := elements(q.Shape); n != fd.hi {
		return fmt.Errorf("input %s is %v, but output %s of %s is %v", p.Name, p.Shape, q.Name, s.e.chunks[from].decl.Name, q.Shape)
	}
	return nil
}

// borrow links an input to the keys or values of one layer of an earlier
// chunk: to that chunk's output of the same role, where the host does not have
// them, else to the layer's part of the host's cache and of the new rows.
func (s *Session) borrow(fd *feed, i int, function string, p *chunking.Port) error {
	if len(p.Layers) != 1 {
		return fmt.Errorf("input %s names layers %v, want one", p.Name, p.Layers)
	}
	layer := p.Layers[0]
	for from := range i {
		ch := s.e.chunks[from]
		if layer < ch.decl.First || layer >= ch.decl.Last {
			continue
		}
		if s.e.contract.KV == chunking.KVState || s.e.contract.Merged() {
			return s.follow(fd, from, function, p.Role, p)
		}
		index, err := ch.index(layer, p.Kind)
		if err != nil {
			return err
		}
		fd.lo, fd.hi = index*len(fd.t.F), (index+1)*len(fd.t.F)
		switch p.Role {
		case models.SharedKeys:
			fd.t.F = s.kv[from][p.Kind].k.F[fd.lo:fd.hi]
		case models.SharedValues:
			fd.t.F = s.kv[from][p.Kind].v.F[fd.lo:fd.hi]
		default:
			role := models.NewKeys
			if p.Role == models.SharedNewValues {
				role = models.NewValues
			}
			q := chunking.Find(ch.decl.Function(function).Outputs, role, p.Kind)
			if q == nil || elements(q.Shape) < fd.hi {
				return fmt.Errorf("%s has no %s for input %s", ch.decl.Name, role, p.Name)
			}
			fd.chunk, fd.output = from, q.Name
		}
		return nil
	}
	return fmt.Errorf("input %s reads layer %d, which no earlier chunk holds", p.Name, layer)
}

// index is the place of a layer in the chunk's stack of its kind.
func (ch *chunk) index(layer int, k models.Kind) (int, error) {
	f := &ch.decl.Functions[0]
	p := chunking.Find(f.States, models.KVState, k)
	if p == nil {
		p = chunking.Find(f.Inputs, models.KeyCache, k)
	}
	if p != nil {
		for i, l := range p.Layers {
			if l == layer {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("%s has no cache of layer %d", ch.decl.Name, layer)
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// lookup writes the scaled rows of ids; padding rows are zero.
func lookup(dst *runtime.Tensor, table checkpoint.Tensor, ids []int32, width int, scale float64) error {
	clear(dst.F)
	for t, id := range ids {
		row := dst.F[t*width : (t+1)*width]
		if err := table.ReadFloat32(row, int(id)*width); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
		for i := range row {
			row[i] *= float32(scale)
		}
	}
	return nil
}
