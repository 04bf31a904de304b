package mlx

import (
	"fmt"
	"io"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
)

// stack presents the matrices of a layer's experts as one tensor [experts, out,
// in].
type stack struct {
	name  string
	parts []checkpoint.Tensor
	shape []int
	each  int // elements of a part
}

func newStack(name string, parts []checkpoint.Tensor) (*stack, error) {
	for i, p := range parts {
		switch {
		case p == nil:
			return nil, fmt.Errorf("mlx: expert %d of %q is missing", i, name)
		case !slices.Equal(p.Shape(), parts[0].Shape()) || p.DType() != parts[0].DType():
			return nil, fmt.Errorf("mlx: tensor %q is %v %v, that of expert 0 %v %v", p.Name(), p.DType(), p.Shape(), parts[0].DType(), parts[0].Shape())
		}
	}
	return &stack{name, parts, append([]int{len(parts)}, parts[0].Shape()...), checkpoint.NumElements(parts[0])}, nil
}

func (s *stack) Name() string            { return s.name }
func (s *stack) DType() checkpoint.DType { return s.parts[0].DType() }
func (s *stack) Shape() []int            { return s.shape }

func (s *stack) WriteTo(w io.Writer) (int64, error) {
	var n int64
	for _, p := range s.parts {
		m, err := p.WriteTo(w)
		n += m
		checkpoint.Release(p)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *stack) ReadFloat32(dst []float32, off int) error {
	for len(dst) > 0 {
		i, at := off/s.each, off%s.each
		if i >= len(s.parts) {
			return fmt.Errorf("mlx: tensor %q: read beyond its end", s.name)
		}
		n := min(len(dst), s.each-at)
		if err := s.parts[i].ReadFloat32(dst[:n], at); err != nil {
			return err
		}
		dst, off = dst[n:], off+n
	}
	return nil
}
