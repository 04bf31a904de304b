package replay

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/elementary"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// calc computes with the tensors of a drafter. Every method returns a new matrix;
// the first error is latched.
type calc struct {
	src     checkpoint.Source
	weights decoder.Weights
	tap     func(decoder.Input) error
	eps     float32
	act     func(dst, x []float32)
	err     error
}

// activation is the function of a gated MLP by its name in models.Config.
func activation(name string) func(dst, x []float32) {
	switch name {
	case "silu":
		return kernel.Silu
	case "gelu_tanh":
		return kernel.GeluTanh
	}
	return func(dst, x []float32) { // gelu: x·Φ(x)
		for i, v := range x {
			dst[i] = float32(float64(v) * 0.5 * (1 + elementary.Erf(float64(v)/math.Sqrt2)))
		}
	}
}

func (c *calc) fail(err error) {
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("replay: %w", err)
	}
}

// tensor is the matrix of a module, replaced or not.
func (c *calc) tensor(path string) checkpoint.Tensor {
	if c.err != nil {
		return nil
	}
	if c.weights != nil {
		t, err := c.weights(path)
		if err != nil {
			c.fail(err)
			return nil
		}
		if t != nil {
			return t
		}
	}
	t, ok := c.src.Tensor(path + ".weight")
	if !ok {
		c.fail(fmt.Errorf("tensor %q is missing", path+".weight"))
		return nil
	}
	return t
}

// linear is x·wᵀ for each of several modules that share their input.
func (c *calc) linear(x decoder.Matrix, paths ...string) []decoder.Matrix {
	out := make([]decoder.Matrix, len(paths))
	if c.err == nil && c.tap != nil {
		c.fail(c.tap(decoder.Input{Modules: paths, X: x}))
	}
	for i, path := range paths {
		out[i] = decoder.NewMatrix(x.Rows, 1)
		t := c.tensor(path)
		if t == nil {
			continue
		}
		w, err := checkpoint.ReadAll(t)
		if err != nil {
			c.fail(err)
			continue
		}
		out[i] = product(x, w)
	}
	return out
}

// one is linear for one module.
func (c *calc) one(x decoder.Matrix, path string) decoder.Matrix { return c.linear(x, path)[0] }

// product is x·wᵀ.
func product(x decoder.Matrix, w []float32) decoder.Matrix {
	n := len(w) / x.Cols
	y := decoder.NewMatrix(x.Rows, n)
	parallel.Ranges(x.Rows, 64, func(lo, hi int) {
		kernel.MulF32(y.Data[lo*n:], n, x.Data[lo*x.Cols:], x.Cols, hi-lo, w, x.Cols, n, x.Cols)
	})
	return y
}

// norm is RMSNorm of each vector of the given width in a row; path "" has no
// gains.
func (c *calc) norm(x decoder.Matrix, path string, width int) decoder.Matrix {
	y := x.Clone()
	gamma := slices.Repeat([]float32{1}, width)
	if path != "" {
		gamma = c.vector(path+".weight", width)
	}
	if c.err != nil || x.Cols%width != 0 {
		return y
	}
	parallel.Ranges(x.Rows, 64, func(lo, hi int) {
		for i := lo * x.Cols; i < hi*x.Cols; i += width {
			kernel.RMSNorm(y.Data[i:i+width], x.Data[i:i+width], gamma, c.eps)
		}
	})
	return y
}

// vector reads a whole small tensor.
func (c *calc) vector(name string, n int) []float32 {
	if c.err != nil {
		return make([]float32, n)
	}
	t, ok := c.src.Tensor(name)
	if !ok || checkpoint.NumElements(t) != n {
		c.fail(fmt.Errorf("tensor %q of %d elements is missing", name, n))
		return make([]float32, n)
	}
	v, err := checkpoint.ReadAll(t)
	c.fail(err)
	return v
}

// rows gathers rows of a module's matrix, times scale.
func (c *calc) rows(path string, width int, scale float32, ids []int32) decoder.Matrix {
	m := decoder.NewMatrix(len(ids), width)
	if t := c.tensor(path); t != nil {
		c.fail(gather(m, t, ids))
	}
	if scale != 1 {
		kernel.MulScalar(m.Data, m.Data, scale)
	}
	return m
}

func gather(dst decoder.Matrix, t checkpoint.Tensor, ids []int32) error {
	for i, id := range ids {
		if err := t.ReadFloat32(dst.Row(i), int(id)*dst.Cols); err != nil {
			return err
		}
	}
	return nil
}

func (c *calc) add(a, b decoder.Matrix) decoder.Matrix {
	y := a.Clone()
	if c.err == nil {
		kernel.Add(y.Data, y.Data, b.Data)
	}
	return y
}

// mlp is down(act(gate(x))·up(x)); paths begin with p.
func (c *calc) mlp(x decoder.Matrix, p string) decoder.Matrix {
	g := c.linear(x, p+"gate_proj", p+"up_proj")
	if c.err == nil {
		c.act(g[0].Data, g[0].Data)
		kernel.Mul(g[0].Data, g[0].Data, g[1].Data)
	}
	return c.one(g[0], p+"down_proj")
}

// beside puts the rows of two matrices next to each other.
func beside(a, b decoder.Matrix) decoder.Matrix {
	y := decoder.NewMatrix(a.Rows, a.Cols+b.Cols)
	for t := range a.Rows {
		copy(y.Row(t), a.Row(t))
		copy(y.Row(t)[a.Cols:], b.Row(t))
	}
	return y
}
