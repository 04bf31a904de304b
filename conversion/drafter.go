package conversion

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/internal/atomicdir"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mil/pass"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/quant"
)

// DrafterOptions configures ConvertDrafter.
type DrafterOptions struct {
	Context int    // 0: min(DefaultContext, max_position_embeddings)
	Compute string // "fp16" (default) or "fp32"
	Rows    []int  // tokens that functions over the text take at once; nil: chunking.DefaultDrafterRows
	Blocks  []int  // block lengths of a block drafter; nil: the full one

	// Target is the checkpoint directory of the target: it settles which layers
	// are tapped, and it has the tables that some drafters share with it.
	// "": unknown.
	Target string
	// Taps are the tapped layers of an EAGLE-3 head whose files do not tell;
	// nil: by its rule, from the target.
	Taps []int
	// Reading is models.ReadAnchor or ReadMasks for a block drafter whose files
	// contradict each other.
	Reading string
	// Quantize compresses weights by a recipe for Core ML; nil keeps fp16. What
	// decides how many drafts are verified, a confidence head, is kept, and so
	// are the tables that the host looks rows up in.
	Quantize *quant.Recipe

	IgnoreKeys []string
	Force      bool
	NoSync     bool
	Progress   func(stage string, done, total int64)
}

// DrafterReport says what the conversion of a drafter did.
type DrafterReport struct {
	Drafter string         `json:"drafter"`
	Used    int            `json:"tensors_used"`
	Waived  []WaivedTensor `json:"tensors_waived"`
	Ops     int            `json:"ops"` // constants apart
	Model   int64          `json:"model_bytes"`
	Weights int64          `json:"weight_bytes"`
	Shared  int64          `json:"shared_bytes"` // what equal constants did not take again
	// SharedEmbedding says that the drafter's table equals the target's, so that
	// its bundle has none.
	SharedEmbedding bool              `json:"embedding_is_the_targets"`
	Files           []string          `json:"files_copied"`
	Compressed      []CompressedClass `json:"compressed,omitempty"`
	Warnings        []string          `json:"warnings,omitempty"`

	contract *chunking.DrafterContract
}

// Contract returns the contract of the bundle.
func (r *DrafterReport) Contract() *chunking.DrafterContract { return r.contract }

// IsDrafter reports whether dir holds the checkpoint of a speculative drafter.
func IsDrafter(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	return err == nil && models.IsDrafter(data)
}

// ConvertDrafter writes a bundle of the drafter in src to the directory out:
// drafter.json, one package with all its functions, and the tables that the
// host looks rows up in. The bundle appears whole or not at all.
func ConvertDrafter(ctx context.Context, src, out string, o DrafterOptions) (*DrafterReport, error) {
	if err := replaceableDrafter(out, o.Force); err != nil {
		return nil, err
	}
	s, err := openDrafter(src, &o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	rep := &DrafterReport{Drafter: s.d.Config().Drafter, Waived: []WaivedTensor{}}
	c, shared, err := s.design(o)
	if err != nil {
		return nil, err
	}
	rep.contract, rep.SharedEmbedding = c, shared
	if rep.Warnings, err = s.halves(); err != nil {
		return nil, err
	}
	for _, u := range s.d.Weights() {
		if u.Use == models.Used {
			rep.Used++
		} else {
			rep.Waived = append(rep.Waived, WaivedTensor{u.Name, u.Reason})
		}
	}
	err = atomicdir.Write(out, atomicdir.Options{Force: o.Force, NoSync: o.NoSync}, func(dir string) error {
		return s.write(ctx, dir, c, o, rep)
	})
	if err != nil {
		return nil, err
	}
	return rep, nil
}

// design writes the contract. shared says that the drafter's table of
// embeddings equals its target's.
func (s *drafterSource) design(o DrafterOptions) (c *chunking.DrafterContract, shared bool, err error) {
	own := s.d.Embedding()
	if own != nil && s.targetTable != nil {
		if shared, err = equalTables(own, s.targetTable); err != nil {
			return nil, false, err
		}
	}
	c, err = chunking.DesignDrafter(s.d.Config(), chunking.DrafterOptions{Context: o.Context, Compute: o.Compute, Rows: o.Rows, Blocks: o.Blocks,
		OwnEmbedding: own != nil && !shared})
	if err == nil && s.recipe != nil {
		c.Quantization = s.recipe.Marshal()
	}
	return c, shared, err
}

// replaceableDrafter is replaceable for the bundle of a drafter.
func replaceableDrafter(out string, force bool) error {
	entries, err := os.ReadDir(out)
	if os.IsNotExist(err) {
		return nil
	}
	switch {
	case err != nil:
		return fmt.Errorf("conversion: %s exists and is not a directory (choose another name)", out)
	case !force:
		return fmt.Errorf("conversion: %s exists already (use --force to replace it)", out)
	case len(entries) > 0 && !chunking.IsDrafter(out):
		return fmt.Errorf("conversion: %s exists and is not a drafter's bundle: it has no %s (remove it yourself, or choose another name)", out, chunking.DrafterFile)
	}
	return nil
}

// drafterSource is an opened checkpoint of a drafter.
type drafterSource struct {
	dir         string
	d           *models.Drafter
	targetTable checkpoint.Tensor // nil: no target given
	targetHead  checkpoint.Tensor // nil: no target given
	closers     []func() error
	ignore      []string
	recipe      *quant.Recipe // nil: none
	compression *compression
}

func (s *drafterSource) close() {
	for _, c := range s.closers {
		_ = c()
	}
}

// openDrafter reads the drafter and what it needs to know of its target, and
// fills in defaults.
func openDrafter(dir string, o *DrafterOptions) (*drafterSource, error) {
	s := &drafterSource{dir: dir, ignore: o.IgnoreKeys}
	ok := false
	defer func() {
		if !ok {
			s.close()
		}
	}()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("conversion: %s is not a Hugging Face model directory: %w", dir, err)
	}
	choices := models.DrafterChoices{Taps: o.Taps, Reading: o.Reading}
	var target *models.Config
	if o.Target != "" {
		t, err := OpenSource(o.Target)
		if err != nil {
			return nil, fmt.Errorf("conversion: target: %w", err)
		}
		s.closers = append(s.closers, t.Close)
		target, s.targetTable = t.Model.Config(), t.Model.Embedding()
		s.targetHead, _ = t.view.Tensor("lm_head.weight")
		choices.TargetLayers = target.Layers
	}
	ckpt, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, ckpt.Close)
	if s.d, err = models.NewDrafter(bytes.NewReader(config), ckpt, choices, s.targetTable, o.IgnoreKeys...); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	cfg := s.d.Config()
	if target != nil {
		switch {
		case cfg.TargetHidden != target.Hidden:
			return nil, fmt.Errorf("conversion: the drafter reads hidden states of %d, the target %s has hidden_size %d (another target?)", cfg.TargetHidden, o.Target, target.Hidden)
		case cfg.Vocab != target.Vocab:
			return nil, fmt.Errorf("conversion: the drafter has a vocabulary of %d, the target %s one of %d (another target?)", cfg.Vocab, o.Target, target.Vocab)
		}
	}
	if s.d.Embedding() == nil && cfg.Drafter != models.Gemma4Assistant && cfg.Hidden != cfg.TargetHidden {
		return nil, fmt.Errorf("conversion: %s stores no embeddings, and those of its target have width %d, not %d", dir, cfg.TargetHidden, cfg.Hidden)
	}
	if o.Context == 0 {
		o.Context = min(DefaultContext, cfg.MaxPositions)
	}
	if o.Compute == "" {
		o.Compute = "fp16"
	}
	if err := s.compress(o.Quantize, o.Compute); err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, dir)
	}
	if o.Rows == nil {
		for _, n := range chunking.DefaultDrafterRows {
			if n <= o.Context {
				o.Rows = append(o.Rows, n)
			}
		}
	}
	ok = true
	return s, nil
}

// equalTables compares two tables of embeddings.
func equalTables(a, b checkpoint.Tensor) (bool, error) {
	if !slices.Equal(a.Shape(), b.Shape()) {
		return false, nil
	}
	defer checkpoint.Release(a)
	defer checkpoint.Release(b)
	const piece = 1 << 16
	x, y := make([]float32, piece), make([]float32, piece)
	for off, n := 0, checkpoint.NumElements(a); off < n; off += piece {
		x, y := x[:min(piece, n-off)], y[:min(piece, n-off)]
		if err := a.ReadFloat32(x, off); err != nil {
			return false, fmt.Errorf("conversion: %w", err)
		}
		if err := b.ReadFloat32(y, off); err != nil {
			return false, fmt.Errorf("conversion: %w", err)
		}
		if !slices.Equal(x, y) {
			return false, nil
		}
	}
	return true, nil
}

// write fills the bundle directory.
func (s *drafterSource) write(ctx context.Context, dir string, c *chunking.DrafterContract, o DrafterOptions, rep *DrafterReport) error {
	if e := c.Embedding; e != nil {
		t := &table{Tensor: s.d.Embedding(), ctx: ctx}
		if err := t.sidecar(filepath.Join(dir, e.File), e.Tensor); err != nil {
			return err
		}
	}
	if c.TargetIDs != "" {
		if err := writeTargetIDs(filepath.Join(dir, c.TargetIDs), s.d.TargetIDs()); err != nil {
			return err
		}
	}
	if err := s.identify(ctx, c); err != nil {
		return err
	}
	p, err := s.program(c)
	if err != nil {
		return err
	}
	w, err := mlpackage.Write(ctx, filepath.Join(dir, c.File), p, mlpackage.WriteOptions{
		Metadata: mlpackage.Metadata{
			ShortDescription: fmt.Sprintf("%s drafter, written by smelt", c.Drafter),
			UserDefined:      map[string]string{MetaSource: c.Source.SHA256, MetaConversion: c.Source.Conversion},
		},
		NoSync: true, // the bundle is synced as a whole
		Progress: func(done, total int64) {
			if o.Progress != nil {
				o.Progress("writing drafter", done, total)
			}
		},
	})
	if err != nil {
		return err
	}
	rep.Model, rep.Weights, rep.Shared = w.Model, w.Weights, w.Shared
	rep.Compressed = s.compression.classes()
	for _, f := range p.Functions {
		rep.Ops += countOps(f)
	}
	if rep.Files, err = copyFiles(s.dir, filepath.Join(dir, chunking.HFDir)); err != nil {
		return err
	}
	contract, err := c.Marshal()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{chunking.DrafterFile: contract, chunking.ReportFile: append(text, '\n')} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("conversion: %w", err)
		}
	}
	return nil
}

// copyFiles copies the source's small files as they are.
func copyFiles(from, to string) ([]string, error) {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return nil, fmt.Errorf("conversion: %w", err)
	}
	var names []string
	for _, name := range passengers {
		data, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("conversion: copy %s: %w", name, err)
		}
		names = append(names, name)
	}
	return names, nil
}

// writeTargetIDs stores the target's ids of the draft vocabulary.
func writeTargetIDs(path string, ids []int32) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("conversion: %w", err)
	}
	err = checkpoint.Encode(f, []checkpoint.Tensor{checkpoint.NewInt32("target_ids", []int{len(ids)}, ids)}, nil)
	if e := f.Close(); err == nil && e != nil {
		err = fmt.Errorf("conversion: %w", e)
	}
	return err
}

// identify stamps the contract with what it was made of.
func (s *drafterSource) identify(ctx context.Context, c *chunking.DrafterContract) error {
	config, err := json.Marshal(s.d.Config())
	if err != nil {
		return fmt.Errorf("conversion: %w", err)
	}
	h := sha256.New()
	h.Write(config)
	for _, u := range s.d.Weights() {
		if u.Use != models.Used {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !slices.Contains(c.Source.DTypes, u.DType) {
			c.Source.DTypes = append(c.Source.DTypes, u.DType)
		}
		h.Write([]byte(strconv.Quote(u.Name) + u.DType + fmt.Sprint(u.Shape)))
		t, ok := s.d.Source().Tensor(u.Name)
		if !ok {
			return fmt.Errorf("conversion: tensor %q is missing", u.Name)
		}
		if err := sample(h, t); err != nil {
			return err
		}
	}
	slices.Sort(c.Source.DTypes)
	c.Source.SHA256 = hex.EncodeToString(h.Sum(nil))
	data, err := c.Marshal()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	c.Source.Conversion = hex.EncodeToString(sum[:])
	return nil
}

// program builds all functions of a drafter, with shared constants.
func (s *drafterSource) program(c *chunking.DrafterContract) (*mil.Program, error) {
	p := mil.NewProgram()
	for i := range c.Functions {
		f := &c.Functions[i]
		name := f.Name
		if len(c.Functions) == 1 {
			name = "main"
		}
		part, err := c.Part(f)
		if err != nil {
			return nil, err
		}
		part.FlatTable = s.compression != nil
		b := mil.NewBuilder(name, Opset)
		if err := s.d.Build(b, part); err != nil {
			return nil, fmt.Errorf("conversion: %s: %w", f.Name, err)
		}
		fn, err := b.Func()
		if err != nil {
			return nil, fmt.Errorf("conversion: %s: %w", f.Name, err)
		}
		p.Functions[name] = fn
		if i == 0 {
			p.Default = name
		}
	}
	if err := pass.Pipeline(p, s.compression.passes(1, c.Compute == "fp16")...); err != nil {
		return nil, fmt.Errorf("conversion: %w", err)
	}
	return p, nil
}
