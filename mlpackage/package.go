package mlpackage

import (
	"errors"

	"github.com/smelt-go/smelt/internal/milblob"
	"github.com/smelt-go/smelt/mil"
)

// A Package is a model read from disk. Constants of Program may lie in mapped
// memory: use the program only until Close.
type Package struct {
	Path     string
	Spec     int // specificationVersion of the file
	Program  *mil.Program
	Features map[string]Interface // what the model describes, by function
	Metadata Metadata
	Size     Size

	blobs []*milblob.File
}

// Size counts the bytes of a package's two large files.
type Size struct {
	Model   int64
	Weights int64
	Blobs   int
}

// Metadata is free text about a model.
type Metadata struct {
	Author           string
	License          string
	ShortDescription string
	Version          string
	UserDefined      map[string]string
}

// Interface lists the features of one function in the order of the file.
type Interface struct {
	Inputs, Outputs, States []Feature
	// PredictedFeature and PredictedProbabilities name the outputs of a
	// classifier.
	PredictedFeature, PredictedProbabilities string
}

// Close unmaps the weights.
func (p *Package) Close() error {
	var errs []error
	for _, b := range p.blobs {
		errs = append(errs, b.Close())
	}
	p.blobs = nil
	return errors.Join(errs...)
}

// WriteOptions returns the options that write the package again as it was:
// version, metadata and what the features say beyond the program's types.
func (p *Package) WriteOptions() WriteOptions {
	return WriteOptions{Spec: p.Spec, Metadata: p.Metadata, Features: p.Features}
}

func (i Interface) all() []Feature {
	var out []Feature
	out = append(out, i.Inputs...)
	out = append(out, i.States...)
	return append(out, i.Outputs...)
}
