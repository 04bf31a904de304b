package mil

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// PrintOptions chooses what Print shows of constants.
type PrintOptions struct {
	// MaxInline is the number of elements up to which a constant is printed
	// element by element; 0 means 16.
	MaxInline int
	// Hash adds the first 12 digits of the SHA-256 of larger constants. It
	// streams every weight.
	Hash bool
}

// Print writes a program as text, one op a line, for goldens and for reading.
// The same program always gives the same text. The text is not meant to be
// parsed.
//
//	func main[CoreML8](x: tensor<fp16, [2, 3]>) {
//	  y_0 = const(2): tensor<fp16, []>
//	  out = mul(x=x, y=y_0): tensor<fp16, [2, 3]>
//	  return out
//	}
func Print(w io.Writer, p *Program, o PrintOptions) error {
	pr := &printer{o: o}
	if pr.o.MaxInline == 0 {
		pr.o.MaxInline = 16
	}
	if p.Default != "" {
		pr.line("default %s", p.Default)
	}
	for i, name := range p.Names() {
		if i > 0 {
			pr.line("")
		}
		pr.function(p.Functions[name])
	}
	if pr.err != nil {
		return pr.err
	}
	_, err := io.WriteString(w, pr.b.String())
	return err
}

// Text is Print with default options. An error becomes part of the text.
func Text(p *Program) string {
	var b strings.Builder
	if err := Print(&b, p, PrintOptions{}); err != nil {
		return "error: " + err.Error() + "\n"
	}
	return b.String()
}

type printer struct {
	o      PrintOptions
	b      strings.Builder
	indent int
	err    error
}

func (p *printer) line(format string, args ...any) {
	if format != "" {
		p.b.WriteString(strings.Repeat("  ", p.indent))
	}
	fmt.Fprintf(&p.b, format, args...)
	p.b.WriteByte('\n')
}

func (p *printer) function(f *Function) {
	p.line("func %s[%v](%s) {", f.Name, f.Opset, declare(f.Inputs))
	p.body(f.Body, "return")
	p.line("}")
}

func declare(vs []*Value) string {
	s := make([]string, len(vs))
	for i, v := range vs {
		s[i] = fmt.Sprintf("%s: %v", v.Name, v.Type)
	}
	return strings.Join(s, ", ")
}

func (p *printer) body(b *Block, keyword string) {
	p.indent++
	for _, o := range b.Ops {
		p.op(o)
	}
	p.line("%s %s", keyword, valueNames(b.Outputs))
	p.indent--
}

func valueNames(vs []*Value) string {
	s := make([]string, len(vs))
	for i, v := range vs {
		s[i] = v.Name
	}
	return strings.Join(s, ", ")
}

func (p *printer) op(o *Op) {
	var s strings.Builder
	if len(o.Outputs) > 0 {
		s.WriteString(valueNames(o.Outputs) + " = ")
	}
	s.WriteString(o.Kind + "(")
	if o.IsConst() && len(o.Outputs) == 1 {
		s.WriteString(p.constant(o.Outputs[0].Const))
	} else {
		for i, a := range o.Args {
			if i > 0 {
				s.WriteString(", ")
			}
			s.WriteString(a.Param + "=" + p.operands(a.Values))
		}
	}
	s.WriteString(")")
	for i, v := range o.Outputs {
		s.WriteString([]string{": ", ", "}[min(i, 1)] + fmt.Sprint(v.Type))
	}
	if len(o.Outputs) != 1 || o.Outputs[0].Name != o.Name {
		fmt.Fprintf(&s, " name=%s", o.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(o.Tags)) {
		fmt.Fprintf(&s, " #%s=%s", k, o.Tags[k])
	}
	if len(o.Blocks) == 0 {
		p.line("%s", s.String())
		return
	}
	for i, b := range o.Blocks {
		head := "} {"
		if i == 0 {
			head = s.String() + " {"
		}
		if len(b.Inputs) > 0 {
			head += " (" + declare(b.Inputs) + ")"
		}
		p.line("%s", head)
		p.body(b, "yield")
	}
	p.line("}")
}

func (p *printer) operands(vs []*Value) string {
	s := make([]string, len(vs))
	for i, v := range vs {
		switch {
		case v == nil:
			s[i] = "nil"
		case v.Inline():
			s[i] = p.constant(v.Const) + ":" + v.Const.Type().DType.String()
			if r := v.Const.Type().Shape; len(r) > 0 {
				s[i] += shapeString(r)
			}
		default:
			s[i] = v.Name
		}
	}
	if len(s) == 1 {
		return s[0]
	}
	return "(" + strings.Join(s, ", ") + ")"
}

// constant prints the contents: a scalar as such, a small tensor as a flat
// list, a large one as … or its hash.
func (p *printer) constant(c Const) string {
	if c == nil {
		return "nil"
	}
	t := c.Type()
	if n := t.NumElements(); n > p.o.MaxInline || n < 0 {
		if !p.o.Hash {
			return "…"
		}
		h := sha256.New()
		if _, err := c.WriteTo(h); err != nil {
			p.fail(err)
			return "…"
		}
		return fmt.Sprintf("sha256:%x", h.Sum(nil)[:6])
	}
	elems, err := elements(c)
	if err != nil {
		p.fail(err)
	}
	if len(t.Shape) == 0 && len(elems) == 1 {
		return elems[0]
	}
	return "[" + strings.Join(elems, ", ") + "]"
}

func (p *printer) fail(err error) {
	if p.err == nil {
		p.err = fmt.Errorf("mil: print: %w", err)
	}
}

func elements(c Const) ([]string, error) {
	t := c.Type()
	var out []string
	switch {
	case t.DType == String:
		if l, ok := c.(*Literal); ok {
			for _, s := range l.Strs {
				out = append(out, strconv.Quote(s))
			}
		}
	case t.DType.IsFloat():
		v, err := ConstFloats(c)
		if err != nil {
			return nil, err
		}
		bits := 32
		if t.DType == Float64 {
			bits = 64
		}
		for _, x := range v {
			out = append(out, strconv.FormatFloat(x, 'g', -1, bits))
		}
	default:
		v, err := ConstInts(c)
		if err != nil {
			return nil, err
		}
		for _, x := range v {
			if t.DType == Bool {
				out = append(out, strconv.FormatBool(x != 0))
			} else {
				out = append(out, strconv.Itoa(x))
			}
		}
	}
	return out, nil
}
