package inspect

import (
	"strings"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

// Package describes an .mlpackage.
type Package struct {
	Spec      int        `json:"specification_version"`
	Default   string     `json:"default_function,omitempty"`
	Functions []Function `json:"functions"`
	Model     int64      `json:"model_bytes"`
	Weights   int64      `json:"weight_bytes"`
	Blobs     int        `json:"blobs"` // entries of the weight file
	// Description and Metadata are what the author wrote.
	Description string            `json:"description,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	// Warnings are what the verifier tolerates in files of other tools.
	Warnings []string `json:"warnings,omitempty"`
	// Problem says what makes the program illegal; empty if nothing does.
	Problem string `json:"problem,omitempty"`
}

// Function describes one function of a package.
type Function struct {
	Name    string  `json:"name"`
	Opset   string  `json:"opset"`
	Inputs  []Value `json:"inputs"`
	Outputs []Value `json:"outputs"`
	States  []Value `json:"states,omitempty"`
	// Ops counts operations that compute when the function runs, by kind.
	Ops   map[string]int `json:"ops"`
	Total int            `json:"total_ops"` // the sum of Ops
	// Constexprs counts operations that are evaluated once, when the model is
	// loaded: weights in a compressed form.
	Constexprs map[string]int `json:"constexprs,omitempty"`
	Constants  int            `json:"constants"`
}

// Value is an input, output or state.
type Value struct {
	Name string `json:"name"`
	Type string `json:"type"` // tensor<fp16, [1, 8]>
}

// ReadPackage describes the .mlpackage at path. A program that the verifier
// rejects is described all the same: see Package.Problem.
func ReadPackage(path string) (*Package, error) {
	p, err := mlpackage.Read(path, mlpackage.ReadOptions{NoVerify: true})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r := &Package{
		Spec: p.Spec, Default: p.Program.Default,
		Model: p.Size.Model, Weights: p.Size.Weights, Blobs: p.Size.Blobs,
		Description: p.Metadata.ShortDescription, Metadata: p.Metadata.UserDefined,
	}
	for _, name := range p.Program.Names() {
		r.Functions = append(r.Functions, describe(p.Program.Functions[name]))
	}
	warnings, err := mil.VerifyLoose(p.Program)
	for _, w := range warnings {
		r.Warnings = append(r.Warnings, w.Error())
	}
	if err != nil {
		r.Problem = path + ": " + err.Error()
	}
	return r, nil
}

func describe(f *mil.Function) Function {
	d := Function{Name: f.Name, Opset: f.Opset.String(), Inputs: []Value{}, Outputs: []Value{}, Ops: map[string]int{}}
	for _, v := range f.Inputs {
		if _, ok := v.Type.(mil.StateType); ok {
			d.States = append(d.States, Value{v.Name, v.Type.String()})
		} else {
			d.Inputs = append(d.Inputs, Value{v.Name, v.Type.String()})
		}
	}
	for _, v := range f.Body.Outputs {
		d.Outputs = append(d.Outputs, Value{v.Name, v.Type.String()})
	}
	f.Body.Walk(func(op *mil.Op) {
		switch {
		case op.IsConst():
			d.Constants++
		case strings.HasPrefix(op.Kind, "constexpr_"):
			if d.Constexprs == nil {
				d.Constexprs = map[string]int{}
			}
			d.Constexprs[op.Kind]++
		default:
			d.Ops[op.Kind]++
			d.Total++
		}
	})
	return d
}
