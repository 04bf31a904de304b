package mil

import (
	"errors"
	"fmt"
	"sync"
)

// Severity grades a Finding.
type Severity uint8

// An Error makes a program unfit to be written or run. A Warning is legal but
// doubtful.
const (
	Warning Severity = iota
	Error
)

// String returns "warning" or "error".
func (s Severity) String() string {
	if s == Error {
		return "error"
	}
	return "warning"
}

// A Finding is one violation that the verifier saw.
type Finding struct {
	Severity Severity
	Rule     string // short fixed identifier of the rule: "bind", "undefined", …
	Function string
	Kind, Op string // the op, if it is about one
	Value    string // the value or parameter, if it is about one
	Msg      string
}

// Error prints "function/kind "op" value: message [rule]".
func (f Finding) Error() string {
	s := f.Function
	if f.Kind != "" {
		s += fmt.Sprintf("/%s %q", f.Kind, f.Op)
	}
	if f.Value != "" {
		s += " " + f.Value
	}
	if s == "" {
		s = "program"
	}
	return fmt.Sprintf("%s: %s [%s]", s, f.Msg, f.Rule)
}

// Verify checks a program against every rule that a file must obey before
// Core ML accepts it: the op table (parameters, const-ness, element types,
// availability in the opset), declared against inferred types, definitions
// before uses, names, ranks, states and outputs. It reports all violations.
func Verify(p *Program) error {
	return joinFindings(Check(p, false))
}

// VerifyLoose checks a program that another tool wrote, perhaps for an older
// opset. What a reader can handle all the same (missing defaults, epsilons of
// another float type, unusual names, outputs that alias inputs) is returned as
// a warning.
func VerifyLoose(p *Program) (warnings []Finding, err error) {
	fs := Check(p, true)
	for _, f := range fs {
		if f.Severity == Warning {
			warnings = append(warnings, f)
		}
	}
	return warnings, joinFindings(fs)
}

// VerifyDraft is Verify for a program between two passes: states may still be
// fp32, as models build them. No file may hold those.
func VerifyDraft(p *Program) error {
	v := &verifier{draft: true}
	v.program(p)
	return joinFindings(v.found)
}

// VerifyFunction is VerifyDraft for one function alone.
func VerifyFunction(f *Function) error {
	v := &verifier{draft: true}
	v.function(f)
	return joinFindings(v.found)
}

// Check returns all findings in the order of the program's text. loose
// chooses the rules of VerifyLoose.
func Check(p *Program, loose bool) []Finding {
	v := &verifier{loose: loose}
	v.program(p)
	return v.found
}

// maxReported bounds the length of a joined error: one mistake in a model
// often repeats in every layer.
const maxReported = 25

func joinFindings(fs []Finding) error {
	var errs []error
	n := 0
	for _, f := range fs {
		if f.Severity != Error {
			continue
		}
		if n++; n <= maxReported {
			errs = append(errs, fmt.Errorf("mil: %w", f))
		}
	}
	if n > maxReported {
		errs = append(errs, fmt.Errorf("mil: and %d more findings", n-maxReported))
	}
	return errors.Join(errs...)
}

// verifier holds the state of one verification.
type verifier struct {
	loose bool
	draft bool
	found []Finding

	fn    *Function
	op    *Op
	scope []map[*Value]bool // values visible in the open blocks
	all   map[*Value]bool   // every value defined so far, visible or not
	names []map[string]bool // value names of the open blocks
	taken map[string]bool   // value names of the whole function
	ops   map[string]bool   // op names
	uses  map[*Value]*usage
	known map[*Value]bool // memo of constKnown
}

// usage says who reads a value.
type usage struct{ constexpr, other int }

// report adds an error; in loose mode a warning if lenient.
func (v *verifier) report(rule string, lenient bool, value, format string, args ...any) {
	f := Finding{Severity: Error, Rule: rule, Value: value, Msg: fmt.Sprintf(format, args...)}
	if lenient && v.loose {
		f.Severity = Warning
	}
	v.add(f)
}

func (v *verifier) warn(rule, value, format string, args ...any) {
	v.add(Finding{Severity: Warning, Rule: rule, Value: value, Msg: fmt.Sprintf(format, args...)})
}

func (v *verifier) add(f Finding) {
	if v.fn != nil {
		f.Function = v.fn.Name
	}
	if v.op != nil {
		f.Kind, f.Op = v.op.Kind, v.op.Name
	}
	v.found = append(v.found, f)
}

func (v *verifier) program(p *Program) {
	if len(p.Functions) == 0 {
		v.report("structure", false, "", "the program has no functions")
		return
	}
	states := map[string]*Value{}
	var first *Function
	var parts []*verifier // one a function, in order
	var work sync.WaitGroup
	whole := v
	for _, name := range p.Names() {
		f := p.Functions[name]
		v := &verifier{loose: whole.loose, draft: whole.draft}
		parts = append(parts, v)
		if f == nil {
			v.report("structure", false, "", "function %q is nil", name)
			continue
		}
		v.fn = f
		if f.Name != name {
			v.report("structure", false, "", "the function is filed under the name %q", name)
		}
		if first == nil {
			first = f
		} else if f.Opset != first.Opset {
			v.report("opset", false, "", "opset %v, but function %s has %v (all functions must share one)", f.Opset, first.Name, first.Opset)
		}
		for _, in := range f.Inputs {
			if in == nil {
				continue
			}
			if t, ok := in.Type.(StateType); ok {
				if o := states[in.Name]; o != nil && o.Type.String() != t.String() {
					v.report("state", true, in.Name, "is %v here and %v in another function", t, o.Type)
				}
				states[in.Name] = in
			}
		}
		// Functions share constants, which nobody changes.
		work.Go(func() { v.function(f) })
	}
	work.Wait()
	for _, part := range parts {
		v.found = append(v.found, part.found...)
	}
	def := p.Default
	if def == "" {
		def = "main"
	}
	if (p.Default != "" || len(p.Functions) > 1) && p.Functions[def] == nil {
		v.report("structure", true, "", "the default function %q does not exist", def)
	}
	if len(p.Functions) > 1 && first != nil && first.Opset < CoreML8 {
		v.report("opset", false, "", "several functions need CoreML8, the opset is %v", first.Opset)
	}
	if len(p.Functions) == 1 && p.Functions["main"] == nil && first != nil && first.Opset < CoreML8 {
		v.report("opset", true, "", "a function not called main needs CoreML8, the opset is %v", first.Opset)
	}
}
