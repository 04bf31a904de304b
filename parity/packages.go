package parity

import (
	"fmt"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/smelt-go/smelt/internal/decompress"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

// packages are the bundle's packages as data, one a chunk, read once.
func (s *Subject) packages() ([]*mlpackage.Package, error) {
	if s.pkgs != nil {
		return s.pkgs, nil
	}
	var out []*mlpackage.Package
	for _, ch := range s.Contract.Chunks {
		p, err := mlpackage.Read(filepath.Join(s.Dir, ch.File), mlpackage.ReadOptions{NoVerify: true})
		if err != nil {
			for _, q := range out {
				q.Close()
			}
			return nil, fmt.Errorf("parity: %s: %w", ch.Name, err)
		}
		out = append(out, p)
	}
	s.pkgs = out
	return out, nil
}

// stored is a constant, or a constexpr over constants, of a package.
type stored struct {
	chunk    int
	function string
	op       *mil.Op // const or constexpr
	value    *mil.Value
}

// weights calls do for every floating point constant and constexpr of all
// functions that something computes with, in order.
func (s *Subject) weights(do func(stored) error) error {
	pkgs, err := s.packages()
	if err != nil {
		return err
	}
	for i, p := range pkgs {
		if err := weightsOf(p.Program, i, do); err != nil {
			return err
		}
	}
	return nil
}

// weightsOf is weights for one package.
func weightsOf(p *mil.Program, chunk int, do func(stored) error) error {
	for _, name := range p.Names() {
		f := p.Functions[name]
		inner := map[*mil.Value]bool{} // operands of constexprs
		for _, o := range f.Body.Ops {
			if isConstexpr(o) {
				for _, a := range o.Args {
					for _, v := range a.Values {
						inner[v] = true
					}
				}
			}
		}
		for _, o := range f.Body.Ops {
			if !o.IsConst() && !isConstexpr(o) {
				continue
			}
			for _, v := range o.Outputs {
				if t, ok := v.Tensor(); !ok || !t.DType.IsFloat() || inner[v] {
					continue
				}
				if err := do(stored{chunk, name, o, v}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func isConstexpr(o *mil.Op) bool { return strings.HasPrefix(o.Kind, "constexpr_") }

// constID tells constants apart by where they lie: those that functions share
// are one.
func constID(c mil.Const) string {
	if r, ok := c.(mil.RawConst); ok {
		if b := r.Raw(); len(b) > 0 {
			return fmt.Sprintf("%p+%d:%v", unsafe.SliceData(b), len(b), c.Type())
		}
	}
	return fmt.Sprintf("%p:%v", c, c.Type())
}

// valueID does the same for a constant or constexpr.
func valueID(v *mil.Value) string {
	if v.Const != nil {
		return constID(v.Const)
	}
	if v.Op == nil {
		return v.Name
	}
	var b strings.Builder
	b.WriteString(v.Op.Kind)
	for _, a := range v.Op.Args {
		b.WriteString(" " + a.Param)
		for _, x := range a.Values {
			b.WriteString("=" + valueID(x))
		}
	}
	return b.String()
}

// decoder reads a constant or constexpr, as fp16 arithmetic decodes it.
func decoder(v *mil.Value) (*decompress.Tensor, error) { return decompress.Of(v, decompress.Options{}) }

// tensorName is the value name of a tensor of the checkpoint.
func tensorName(tensor string) string { return strings.ReplaceAll(tensor, ".", "_") }
