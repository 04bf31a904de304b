package mlpackage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/mil"
)

// mainFunction is the only function of a model without function descriptions.
const mainFunction = "main"

// readDescription decodes the interface and returns the default function of a
// multi-function model, "" for any other.
func readDescription(d *coremlproto.ModelDescription) (features map[string]Interface, def string, err error) {
	features = map[string]Interface{}
	if len(d.GetTrainingInput()) > 0 {
		return nil, "", errors.New("training inputs are not supported")
	}
	add := func(name, label, probabilities string, in, out, state []*coremlproto.FeatureDescription) error {
		if _, dup := features[name]; dup {
			return fmt.Errorf("function %s is described twice", name)
		}
		i := Interface{PredictedFeature: label, PredictedProbabilities: probabilities}
		var errs [3]error
		i.Inputs, errs[0] = readFeatures(in)
		i.Outputs, errs[1] = readFeatures(out)
		i.States, errs[2] = readFeatures(state)
		if err := errors.Join(errs[:]...); err != nil {
			return fmt.Errorf("description of function %s: %w", name, err)
		}
		features[name] = i
		return nil
	}
	if len(d.GetFunctions()) == 0 {
		if d.GetDefaultFunctionName() != "" {
			return nil, "", fmt.Errorf("default function %q without function descriptions", d.GetDefaultFunctionName())
		}
		return features, "", add(mainFunction, d.GetPredictedFeatureName(), d.GetPredictedProbabilitiesName(), d.GetInput(), d.GetOutput(), d.GetState())
	}
	if len(d.GetInput())+len(d.GetOutput())+len(d.GetState()) > 0 {
		return nil, "", errors.New("features both at the top and in function descriptions")
	}
	for _, f := range d.GetFunctions() {
		if err := add(f.GetName(), f.GetPredictedFeatureName(), f.GetPredictedProbabilitiesName(), f.GetInput(), f.GetOutput(), f.GetState()); err != nil {
			return nil, "", err
		}
	}
	if _, ok := features[d.GetDefaultFunctionName()]; !ok {
		return nil, "", fmt.Errorf("default function %q is not described", d.GetDefaultFunctionName())
	}
	return features, d.GetDefaultFunctionName(), nil
}

// checkInterface compares the description of a model with its program, which
// Core ML's own loader does not do.
func checkInterface(p *mil.Program, features map[string]Interface) error {
	for _, name := range sortedKeys(features) {
		if _, ok := p.Functions[name]; !ok {
			return fmt.Errorf("function %s is described but not in the program", name)
		}
	}
	for _, name := range p.Names() {
		f := p.Functions[name]
		described, ok := features[name]
		if !ok {
			return fmt.Errorf("function %s is not described", name)
		}
		inputs, states := splitInputs(f)
		for _, part := range []struct {
			role     string
			features []Feature
			values   []*mil.Value
		}{
			{roleInput, described.Inputs, inputs}, {roleState, described.States, states}, {roleOutput, described.Outputs, f.Body.Outputs},
		} {
			if err := compareFeatures(part.role, part.features, part.values); err != nil {
				return fmt.Errorf("function %s: %w", name, err)
			}
		}
	}
	return nil
}

func splitInputs(f *mil.Function) (inputs, states []*mil.Value) {
	for _, v := range f.Inputs {
		if _, ok := v.Type.(mil.StateType); ok {
			states = append(states, v)
		} else {
			inputs = append(inputs, v)
		}
	}
	return inputs, states
}

func compareFeatures(role string, features []Feature, values []*mil.Value) error {
	byName := map[string]*mil.Value{}
	for _, v := range values {
		byName[v.Name] = v
	}
	seen := map[string]bool{}
	for _, f := range features {
		v, ok := byName[f.Name]
		if !ok {
			return fmt.Errorf("%s %q is described but not in the program", role, f.Name)
		}
		if seen[f.Name] {
			return fmt.Errorf("%s %q is described twice", role, f.Name)
		}
		seen[f.Name] = true
		if f.Opaque() {
			continue
		}
		t, ok := v.Tensor()
		if !ok || t.DType != f.Type.DType {
			return fmt.Errorf("%s %q is described as %v, the program has %v", role, f.Name, f.Type, v.Type)
		}
		if !fits(role, t, f) {
			return fmt.Errorf("%s %q is described as %v, the program has %v", role, f.Name, f.Type, t)
		}
	}
	for _, v := range values {
		if !seen[v.Name] {
			return fmt.Errorf("%s %q of the program is not described", role, v.Name)
		}
	}
	return nil
}

// fits compares shapes. An output may be described without one, and a scalar
// may be described as one element.
func fits(role string, t mil.TensorType, f Feature) bool {
	if role != roleInput && len(f.Type.Shape) == 0 {
		return true
	}
	if t.Rank() == 0 {
		return slices.Equal(f.Type.Shape, []int{1})
	}
	return t.Compatible(f.Type)
}

// writeDescription derives the interface from the program. extra adds what the
// program does not know.
func writeDescription(p *mil.Program, spec int, extra map[string]Interface) (*coremlproto.ModelDescription, error) {
	d := &coremlproto.ModelDescription{}
	names := p.Names()
	for _, name := range sortedKeys(extra) {
		if _, ok := p.Functions[name]; !ok {
			return nil, fmt.Errorf("features are given for function %s, which the program does not have", name)
		}
	}
	single := len(names) == 1 && names[0] == mainFunction
	def := p.Default
	if def == "" {
		def = mainFunction
	}
	if _, ok := p.Functions[def]; !ok {
		return nil, fmt.Errorf("default function %q is not in the program (have %v; set Program.Default)", def, names)
	}
	if !single && spec < mil.CoreML8.SpecVersion() {
		return nil, fmt.Errorf("functions %v need specification version 9, the file has %d", names, spec)
	}
	for _, name := range names {
		in, out, state, err := describeFunction(p.Functions[name], spec, extra[name])
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", name, err)
		}
		if single {
			d.Input, d.Output, d.State = in, out, state
			d.PredictedFeatureName, d.PredictedProbabilitiesName = extra[name].PredictedFeature, extra[name].PredictedProbabilities
			break
		}
		d.DefaultFunctionName = def
		d.Functions = append(d.Functions, &coremlproto.FunctionDescription{
			Name: name, Input: in, Output: out, State: state,
			PredictedFeatureName: extra[name].PredictedFeature, PredictedProbabilitiesName: extra[name].PredictedProbabilities,
		})
	}
	return d, nil
}

func describeFunction(f *mil.Function, spec int, extra Interface) (in, out, state []*coremlproto.FeatureDescription, err error) {
	details := map[string]Feature{}
	for _, e := range extra.all() {
		details[e.Name] = e
	}
	seen := map[string]bool{}
	add := func(role string, values []*mil.Value, list *[]*coremlproto.FeatureDescription) error {
		for _, v := range values {
			if seen[v.Name] {
				return fmt.Errorf("%s %q appears twice in the interface (an output that is an input needs an identity)", role, v.Name)
			}
			seen[v.Name] = true
			d, err := describe(v, role, spec, details[v.Name])
			if err != nil {
				return fmt.Errorf("%s %q: %w", role, v.Name, err)
			}
			delete(details, v.Name)
			*list = append(*list, d)
		}
		return nil
	}
	inputs, states := splitInputs(f)
	if len(f.Body.Outputs) == 0 {
		return nil, nil, nil, errors.New("no outputs")
	}
	if err := errors.Join(add(roleInput, inputs, &in), add(roleState, states, &state), add(roleOutput, f.Body.Outputs, &out)); err != nil {
		return nil, nil, nil, err
	}
	for _, name := range sortedKeys(details) {
		return nil, nil, nil, fmt.Errorf("a feature is given for %q, which is neither input, state nor output", name)
	}
	return in, out, state, nil
}
