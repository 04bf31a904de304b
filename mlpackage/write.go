package mlpackage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/internal/atomicdir"
	"github.com/smelt-go/smelt/internal/diskspace"
	"github.com/smelt-go/smelt/internal/milblob"
	"github.com/smelt-go/smelt/mil"
)

// WriteOptions says what a package holds besides its program.
type WriteOptions struct {
	// Spec is the specificationVersion; 0 means the lowest that the opset allows.
	Spec     int
	Metadata Metadata
	// Features adds to what the program says about its interface: texts,
	// optional inputs, flexible shapes. Keys are function names.
	Features map[string]Interface
	// Force replaces an existing package.
	Force bool
	// NoSync does not wait until the package is on the disk: after a crash of the
	// machine it may be damaged. It suits packages that are synced later.
	NoSync bool
	// Progress, if not nil, is called as constants stream into the weight file,
	// in bytes. Shared constants count once. Calls follow one another, but come
	// from several goroutines.
	Progress func(done, total int64)
}

// Report says what was written.
type Report struct {
	Spec      int
	Functions int
	Ops       int   // constants included
	Model     int64 // bytes of the model file
	Weights   int64 // bytes of the weight file
	Blobs     int
	Shared    int64 // bytes that equal constants did not take again
}

// Write stores a program as the .mlpackage directory path. The program must pass
// mil.VerifyLoose; missing defaults are filled in. After an error, or when ctx is
// cancelled, path is what it was before.
func Write(ctx context.Context, path string, p *mil.Program, opts WriteOptions) (Report, error) {
	var report Report
	err := atomicdir.Write(path, atomicdir.Options{Force: opts.Force, NoSync: opts.NoSync}, func(dir string) (err error) {
		report, err = writeInto(ctx, dir, p, opts)
		return err
	})
	if err != nil {
		return Report{}, fmt.Errorf("mlpackage: %s: %w", path, err)
	}
	return report, nil
}

func writeInto(ctx context.Context, dir string, p *mil.Program, opts WriteOptions) (Report, error) {
	report := Report{Functions: len(p.Functions)}
	spec, err := specFor(p, opts.Spec)
	if err != nil {
		return report, err
	}
	report.Spec = spec
	if _, err := mil.VerifyLoose(p); err != nil {
		return report, err
	}
	description, err := writeDescription(p, spec, opts.Features)
	if err != nil {
		return report, err
	}
	description.Metadata = opts.Metadata.proto()

	weightsDir := filepath.Join(dir, dataDir, filepath.FromSlash(weightsPath))
	if err := os.MkdirAll(weightsDir, 0o755); err != nil {
		return report, err
	}
	file, err := os.Create(filepath.Join(weightsDir, weightsFile))
	if err != nil {
		return report, err
	}
	defer file.Close()
	total := storedBytes(p, spec)
	diskspace.Reserve(file, total)
	s := &store{progress: opts.Progress, total: total}
	s.w = milblob.NewWriter(file, milblob.Options{Check: ctx.Err, Wrote: s.wrote})
	defer s.w.Close()
	e := &encoder{ctx: ctx, spec: spec, store: s.add}
	program, err := e.program(p)
	if err != nil {
		return report, err
	}
	// The goroutines of the weight file are at work meanwhile.
	model, err := coremlproto.Marshal(&coremlproto.Model{
		SpecificationVersion: int32(spec),
		Description:          description,
		Type:                 &coremlproto.Model_MlProgram{MlProgram: program},
	})
	if err != nil {
		return report, err
	}
	if len(model) > maxModel {
		return report, fmt.Errorf("the model file would have %d bytes, at most %d can be read again (cut the model into chunks)", len(model), maxModel)
	}
	if err := s.w.Finish(); err != nil {
		return report, err
	}
	s.w.Close()
	if err := file.Close(); err != nil {
		return report, err
	}
	report.Ops, report.Blobs, report.Shared = e.ops, s.w.Count(), s.w.Saved()
	if report.Blobs > 0 {
		report.Weights = s.w.Size()
	} else if err := os.RemoveAll(weightsDir); err != nil {
		return report, err
	}
	report.Model = int64(len(model))
	text, err := newManifest(report.Blobs > 0).encode()
	if err != nil {
		return report, err
	}
	return report, errors.Join(
		os.WriteFile(filepath.Join(dir, dataDir, filepath.FromSlash(modelPath)), model, 0o644),
		os.WriteFile(filepath.Join(dir, manifestFile), text, 0o644))
}

// specFor finds the specification version for the opset that all functions share.
func specFor(p *mil.Program, want int) (int, error) {
	need := 0
	for _, name := range p.Names() {
		need = max(need, p.Functions[name].Opset.SpecVersion())
	}
	switch {
	case want == 0:
		return need, nil
	case want < need || want > maxSpec:
		return 0, fmt.Errorf("specification version %d does not hold opset of version %d (it must be %d to %d)", want, need, need, maxSpec)
	}
	return want, nil
}

// store puts constants into the weight file.
type store struct {
	w        *milblob.Writer
	progress func(done, total int64)
	total    int64

	mu   sync.Mutex
	done int64
}

func (s *store) add(c mil.Const, _ mil.TensorType) (uint64, error) {
	return s.w.Add(identity(c), blobSource{c})
}

// identity is a key for constants that are one object in memory.
func identity(c mil.Const) any {
	if reflect.TypeOf(c).Kind() == reflect.Pointer {
		return c
	}
	return nil
}

// wrote reports progress.
func (s *store) wrote(n int64) {
	if s.progress == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += n
	s.progress(s.done, s.total)
}

// storedBytes sums what will be streamed: each constant object once.
func storedBytes(p *mil.Program, spec int) int64 {
	total := int64(0)
	eachStored(p, spec, func(t mil.TensorType) { total += t.NumBytes() })
	return total
}

// eachStored visits the constants that a weight file holds, each object once.
func eachStored(p *mil.Program, spec int, visit func(mil.TensorType)) {
	seen := map[any]bool{}
	count := func(v *mil.Value) {
		if v == nil || v.Const == nil {
			return
		}
		t, ok := v.Type.(mil.TensorType)
		if !ok || !storable(t, spec) {
			return
		}
		if k := identity(v.Const); k != nil {
			if seen[k] {
				return
			}
			seen[k] = true
		}
		visit(t)
	}
	for _, name := range p.Names() {
		p.Functions[name].Body.Walk(func(op *mil.Op) {
			for _, a := range op.Args {
				for _, v := range a.Values {
					if v.Inline() {
						count(v)
					}
				}
			}
			if op.IsConst() {
				for _, v := range op.Outputs {
					count(v)
				}
			}
		})
	}
}
