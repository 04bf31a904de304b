package mlpackage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/internal/milblob"
	"github.com/smelt-go/smelt/mil"
)

// ReadOptions says how strict Read is. The zero value is what tools should use.
type ReadOptions struct {
	// NoVerify skips mil.VerifyLoose, to look at a program that is not legal.
	NoVerify bool
	// Warnings receives what mil.VerifyLoose tolerates.
	Warnings func(mil.Finding)
}

// Read opens an .mlpackage directory. The caller must Close the package after
// the last use of its program.
func Read(path string, opts ReadOptions) (*Package, error) {
	p, err := read(path, opts)
	if err != nil {
		return nil, fmt.Errorf("mlpackage: %s: %w", path, err)
	}
	return p, nil
}

func read(path string, opts ReadOptions) (*Package, error) {
	text, err := readFile(filepath.Join(path, manifestFile), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(path); statErr != nil {
			return nil, errors.New("no such package")
		}
		return nil, fmt.Errorf("no %s: not an .mlpackage directory", manifestFile)
	}
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manifestFile, err)
	}
	data := filepath.Join(path, dataDir)
	for _, id := range sortedKeys(m.ItemInfoEntries) {
		item := m.ItemInfoEntries[id]
		if _, err := os.Stat(filepath.Join(data, filepath.FromSlash(item.Path))); err != nil {
			return nil, fmt.Errorf("%s: item %q: %w", manifestFile, item.Name, err)
		}
	}
	dir, err := m.weights()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manifestFile, err)
	}
	model, err := readFile(filepath.Join(data, filepath.FromSlash(m.model())), maxModel)
	if err != nil {
		return nil, err
	}
	p := &Package{Path: path}
	open := func(name string) (*milblob.File, error) {
		if dir == "" {
			return nil, fmt.Errorf("weight file %s: the manifest lists no weights", name)
		}
		f, err := milblob.Open(filepath.Join(data, filepath.FromSlash(dir), name))
		if err == nil {
			p.blobs = append(p.blobs, f)
		}
		return f, err
	}
	if err := p.decode(model, open, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", m.model(), err), p.Close())
	}
	return p, nil
}

// ReadModel decodes a bare model file and the content of its weight.bin, nil if
// there is none. Constants of the program share memory with weights. name is used
// in errors.
func ReadModel(name string, model, weights []byte, opts ReadOptions) (*Package, error) {
	p := &Package{Path: name}
	open := func(file string) (*milblob.File, error) {
		if weights == nil || file != weightsFile {
			return nil, fmt.Errorf("weight file %s is missing", file)
		}
		f, err := milblob.Parse(file, weights)
		if err == nil {
			p.blobs = append(p.blobs, f)
		}
		return f, err
	}
	if err := p.decode(model, open, opts); err != nil {
		return nil, fmt.Errorf("mlpackage: %s: %w", name, err)
	}
	return p, nil
}

// maxModel is the size of a message that protobuf implementations accept.
const maxModel = 1<<31 - 1

func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s: not a file of at most %d bytes", path, most)
	}
	return os.ReadFile(path)
}

// specVersions are the versions that may hold an ML Program.
const minSpec, maxSpec = 6, 10

func (p *Package) decode(model []byte, open func(string) (*milblob.File, error), opts ReadOptions) error {
	m, err := coremlproto.Unmarshal(model)
	if err != nil {
		return err
	}
	switch m.GetType().(type) {
	case *coremlproto.Model_MlProgram:
	case *coremlproto.Model_Pipeline:
		return errors.New("the model is a pipeline, not an ML Program (read its members one by one)")
	case *coremlproto.Model_SerializedModel:
		return errors.New("the model is serialized, not an ML Program")
	default:
		return errors.New("the model is not an ML Program (a neural network or a classic model?)")
	}
	p.Spec = int(m.GetSpecificationVersion())
	if p.Spec < minSpec || p.Spec > maxSpec {
		return fmt.Errorf("specification version %d, ML Programs have %d to %d", p.Spec, minSpec, maxSpec)
	}
	if m.GetIsUpdatable() {
		return errors.New("updatable models are not supported")
	}
	if err := errors.Join(known(m, "model"), known(m.GetDescription(), "description")); err != nil {
		return err
	}
	if p.Program, err = readProgram(m.GetMlProgram(), newWeights(open)); err != nil {
		return err
	}
	for _, name := range p.Program.Names() {
		if f := p.Program.Functions[name]; f.Opset.SpecVersion() > p.Spec {
			return fmt.Errorf("function %s: opset %v needs specification version %d, the file has %d", name, f.Opset, f.Opset.SpecVersion(), p.Spec)
		}
	}
	if p.Features, p.Program.Default, err = readDescription(m.GetDescription()); err != nil {
		return err
	}
	if err := checkInterface(p.Program, p.Features); err != nil {
		return err
	}
	p.Metadata = readMetadata(m.GetDescription().GetMetadata())
	p.Size.Model = int64(len(model))
	for _, b := range p.blobs {
		p.Size.Blobs += len(b.Records())
		p.Size.Weights += b.Len()
	}
	if opts.NoVerify {
		return nil
	}
	warnings, err := mil.VerifyLoose(p.Program)
	if opts.Warnings != nil {
		for _, w := range warnings {
			opts.Warnings(w)
		}
	}
	return err
}

func readMetadata(m *coremlproto.Metadata) Metadata {
	return Metadata{
		Author: m.GetAuthor(), License: m.GetLicense(), ShortDescription: m.GetShortDescription(),
		Version: m.GetVersionString(), UserDefined: m.GetUserDefined(),
	}
}

func (m Metadata) proto() *coremlproto.Metadata {
	if m.Author+m.License+m.ShortDescription+m.Version == "" && len(m.UserDefined) == 0 {
		return nil
	}
	return &coremlproto.Metadata{
		Author: m.Author, License: m.License, ShortDescription: m.ShortDescription,
		VersionString: m.Version, UserDefined: m.UserDefined,
	}
}
