package parity

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/runtime"
)

var (
	nan     = math.NaN()
	sprintf = fmt.Sprintf
)

// short prints a number for people.
func short(v float64) string { return fmt.Sprintf("%.4g", v) }

// Subject is a bundle under test with everything the gates share.
type Subject struct {
	Dir        string
	Contract   *chunking.Contract
	Recordings []*Recording
	// Reference recomputes what a recording lacks; nil without a checkpoint.
	// Where the bundle compresses weights it computes with what these decode
	// to; Original computes with the checkpoint as it is.
	Reference, Original *reference.Model
	// Config is what config.json in the bundle says, read independently of
	// the converter; nil with ConfigErr set if that is impossible.
	Config    *reference.Config
	ConfigErr error

	opts    Options
	large   bool
	engines map[runtime.Mode]*engine.Engine
	runs    map[runKey]*run
	traces  map[traceKey]siteRows
	walks   map[runtime.Mode]*straightWalk
	pkgs    []*mlpackage.Package
	source  checkpoint.Source // the checkpoint's tensors, nil without one
	codes   *decodedSource    // nil if no weights are compressed
	golden  *Recording        // as read, nil without one
	closers []func() error
	broken  bool // the contract gate could not open it
}

// largeWeights is the size of the chunks' weights from which on gates measure
// less, to finish in minutes.
const largeWeights = 64 << 20

// openSubject reads the contract and the independent configuration.
func openSubject(dir string, opts Options) (*Subject, error) {
	c, err := chunking.ReadContract(dir)
	if err != nil {
		return nil, err
	}
	s := &Subject{Dir: dir, Contract: c, opts: opts, engines: map[runtime.Mode]*engine.Engine{},
		runs: map[runKey]*run{}, traces: map[traceKey]siteRows{}, walks: map[runtime.Mode]*straightWalk{}}
	config, err := os.ReadFile(filepath.Join(dir, chunking.HFDir, "config.json"))
	if err == nil {
		var parsed reference.Config
		if parsed, err = reference.ParseConfig(config); err == nil {
			s.Config = &parsed
		}
	}
	s.ConfigErr = err
	var weights int64
	for _, ch := range c.Chunks {
		_ = filepath.WalkDir(filepath.Join(dir, ch.File), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if info, err := d.Info(); err == nil {
					weights += info.Size()
				}
			}
			return nil
		})
	}
	s.large = weights > largeWeights
	return s, nil
}

// Close releases the bundle's files and the checkpoint.
func (s *Subject) Close() error {
	var errs []error
	for _, e := range s.engines {
		errs = append(errs, e.Close())
	}
	s.engines = map[runtime.Mode]*engine.Engine{}
	if s.Original != nil {
		errs = append(errs, s.Original.Close())
	}
	for _, p := range s.pkgs {
		errs = append(errs, p.Close())
	}
	for _, c := range s.closers {
		errs = append(errs, c())
	}
	s.pkgs, s.closers = nil, nil
	return errors.Join(errs...)
}

// Engine opens the bundle in a mode, once.
func (s *Subject) Engine(mode runtime.Mode) (*engine.Engine, error) {
	if e, ok := s.engines[mode]; ok {
		return e, nil
	}
	e, err := engine.Open(s.Dir, engine.Options{Mode: mode})
	if err != nil {
		return nil, err
	}
	s.engines[mode] = e
	return e, nil
}

// Host starts an empty sequence.
func (s *Subject) Host(mode runtime.Mode) (Host, error) {
	e, err := s.Engine(mode)
	if err != nil {
		return nil, err
	}
	if s.opts.Host != nil {
		return s.opts.Host(e), nil
	}
	return NewHost(e), nil
}

func (s *Subject) progress(stage string, done, total int) {
	if s.opts.Progress != nil {
		s.opts.Progress(stage, done, total)
	}
}

// has reports whether the bundle has a function of the kind.
func (s *Subject) has(via Via) bool { return largest(s.Contract, via) > 0 }

// modes are the rungs of the precision ladder that say something: both for
// fp16 bundles, one for bundles that compute in fp32 anyway.
func (s *Subject) modes() []runtime.Mode {
	modes := s.opts.Modes
	if modes == nil {
		modes = []runtime.Mode{runtime.FP32, runtime.Typed}
	}
	if s.Contract.Compute == "fp32" {
		return []runtime.Mode{runtime.Typed}
	}
	return modes
}

// wants reports whether a mode is to be measured.
func (s *Subject) wants(mode runtime.Mode) bool {
	for _, m := range s.modes() {
		if m == mode {
			return true
		}
	}
	return false
}

// sharp is the mode in which structural mistakes stand out most.
func (s *Subject) sharp() runtime.Mode { return s.modes()[0] }

// window is the number of keys a sliding layer must see: as config.json says
// it, else as the contract does; 0 if there are no sliding layers.
func (s *Subject) window() int {
	if s.Config != nil {
		return s.Config.Window
	}
	return s.Contract.Attention[models.Sliding].Window
}

// sliding reports whether layer i must be a sliding one.
func (s *Subject) sliding(i int) bool {
	if s.Config != nil && i < len(s.Config.Kinds) {
		return s.Config.Kinds[i] == reference.SlidingAttention
	}
	return s.Contract.Model.Kinds[i] == models.Sliding
}

// longest is the recording with the most tokens.
func (s *Subject) longest() *Recording {
	best := s.Recordings[0]
	for _, r := range s.Recordings {
		if len(r.IDs) > len(best.IDs) {
			best = r
		}
	}
	return best
}

// extended are the ids of the longest recording, continued with ids that are
// always the same to n tokens.
func (s *Subject) extended(n int) []int32 {
	ids := append([]int32(nil), s.longest().IDs...)
	return continueIDs(ids, n, s.Contract.Model.Vocab)
}

// continueIDs appends pseudo-random ids until there are n, and cuts to n.
func continueIDs(ids []int32, n, vocab int) []int32 {
	for x := uint32(2463534242 + len(ids)); len(ids) < n; {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		ids = append(ids, int32(uint64(x)*uint64(vocab)>>32))
	}
	return ids[:n]
}

// missing reports whether an error says that a file does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
