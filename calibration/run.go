package calibration

import (
	"context"
	"fmt"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/quant"
)

// Options of Run.
type Options struct {
	// Quantize is given a module with what its inputs are like, and returns what
	// its matrix is decoded to: what a sequential run goes on with. nil leaves
	// the module as it is.
	Quantize func(ctx context.Context, m *Module) (checkpoint.Tensor, error)
	// Have returns what Quantize returned for a module in an earlier run that was
	// stopped; such modules are not asked for again. May be nil.
	Have func(path string) (checkpoint.Tensor, bool)
	// Wants says what a module is to get: nothing of it is computed for others.
	Wants func(path string) Want

	// Sequential runs layers behind quantized ones.
	Sequential bool
	// Correction is a, the part of the drift of its inputs that a module makes up
	// for, 0 to 1. Sequential runs only.
	Correction float64

	// Progress, if not nil, is told of work done.
	Progress func(stage string, done, total int64)
}

// Want is what a module needs.
type Want struct {
	What What
	// Group is that of the module's codec, 0 for none.
	Group int
	// Turned says that the codec rotates rows: see Module.TurnedFeedback.
	Turned bool
}

// What is a part of a Hessian.
type What int

// The parts.
const (
	Nothing    What = iota
	Importance      // the diagonal of its Hessian
	Full            // the Hessian
)

// Module is a linear module about to be quantized.
type Module struct {
	Path  string // as in a text-only checkpoint, without .weight
	Layer int    // −1: the embedding or the head
	// Weight is the matrix, in its stored type. A corrected one is read in
	// float32, whatever its type says.
	Weight  checkpoint.Tensor
	Hessian *Hessian
	Damping float64 // that suits the module
	// Corrected says that Weight is no longer that of the checkpoint.
	Corrected bool

	factors map[space]*quant.Feedback // shared among modules with one input
}

// space is what a Hessian is factored for.
type space struct {
	group  int
	turned bool
}

// Damping of layers, and of heads, whose inputs stand for the many that no
// calibration text has.
const (
	LayerDamping = 0.01
	HeadDamping  = 0.1
)

// Feedback is the Hessian factored for a codec with groups of so many columns, 0
// for none.
func (m *Module) Feedback(group int) (*quant.Feedback, error) {
	return m.factor(space{group, false}, quant.NewFeedback)
}

// TurnedFeedback is Feedback for codecs that rotate rows (quant.Turbo).
func (m *Module) TurnedFeedback(group int) (*quant.Feedback, error) {
	return m.factor(space{group, true}, quant.NewTurnedFeedback)
}

func (m *Module) factor(s space, factor func(h []float64, cols, group int, damping float64) (*quant.Feedback, error)) (*quant.Feedback, error) {
	if f := m.factors[s]; f != nil {
		return f, nil
	}
	f, err := factor(m.Hessian.Sum, m.Hessian.Cols, s.group, m.Damping)
	if err != nil {
		return nil, fmt.Errorf("calibration: module %s: %w", m.Path, err)
	}
	if m.factors == nil {
		m.factors = map[space]*quant.Feedback{}
	}
	m.factors[s] = f
	return f, nil
}

// run is one of Run.
type run struct {
	d           *decoder.Decoder
	o           Options
	windows     [][]int32
	done, total int64
}

// Run takes d through windows of tokens. Modules come in the order they run, but
// for the head: where it is tied to the embedding, or its Hessian is that of the
// unquantized model, it comes first.
func Run(ctx context.Context, d *decoder.Decoder, windows [][]int32, o Options) error {
	if len(windows) == 0 {
		return fmt.Errorf("calibration: no windows")
	}
	if o.Have == nil {
		o.Have = func(string) (checkpoint.Tensor, bool) { return nil, false }
	}
	r := &run{d: d, o: o, windows: windows}
	layers := int64(d.Config().Layers)
	r.total = 2 * layers
	if o.Sequential {
		r.total = 8 * layers
		if d.Config().TiedHead && o.Wants(decoder.EmbedModule).What != Nothing {
			r.total += layers
		}
	}
	if !o.Sequential {
		return r.static(ctx)
	}
	return r.sequential(ctx)
}

func (r *run) step(n int64) {
	r.done += n
	if r.o.Progress != nil {
		r.o.Progress("calibrating", r.done, r.total)
	}
}

// static takes all Hessians from the unquantized model.
func (r *run) static(ctx context.Context) error {
	s, err := r.d.Embed(ctx, r.windows, nil)
	if err != nil {
		return err
	}
	for layer := range r.d.Config().Layers {
		err := r.d.Layer(ctx, s, decoder.Options{Tap: func(in decoder.Input) error {
			_, err := r.stage(ctx, layer, in, nil)
			return err
		}})
		if err != nil {
			return err
		}
		r.step(2)
	}
	return r.head(ctx, s)
}

// head quantizes the head after the layers of s.
func (r *run) head(ctx context.Context, s *decoder.State) error {
	path := r.d.Head()
	if r.o.Wants(path).What == Nothing {
		return nil
	}
	if _, ok := r.o.Have(path); ok {
		return nil
	}
	x, err := r.d.Norm(s)
	if err != nil {
		return err
	}
	_, err = r.quantize(ctx, -1, decoder.Input{Modules: []string{path}, X: x}, nil, HeadDamping)
	return err
}

// sequential quantizes layers behind quantized ones.
func (r *run) sequential(ctx context.Context) error {
	full, err := r.d.Embed(ctx, r.windows, nil)
	if err != nil {
		return err
	}
	var replaced decoder.Weights
	table, ok := r.o.Have(decoder.EmbedModule)
	if !ok && r.d.Config().TiedHead && r.o.Wants(decoder.EmbedModule).What != Nothing {
		if table, err = r.tied(ctx); err != nil {
			return err
		}
	} else if r.total > 8*int64(r.d.Config().Layers) {
		r.step(int64(r.d.Config().Layers))
	}
	if table != nil {
		replaced = func(path string) (checkpoint.Tensor, error) {
			if path == decoder.EmbedModule {
				return table, nil
			}
			return nil, nil
		}
	}
	behind, err := r.d.Embed(ctx, r.windows, replaced)
	if err != nil {
		return err
	}
	for layer := range r.d.Config().Layers {
		if err := r.layer(ctx, layer, full, behind); err != nil {
			return err
		}
		r.step(8)
	}
	if r.d.Config().TiedHead {
		return nil
	}
	return r.head(ctx, behind)
}

// headTokens is how many tokens the Hessian of a tied head is summed over: it
// comes before everything else, at the price of another run of the model.
const headTokens = 6144

// tied quantizes the matrix of embedding and head.
func (r *run) tied(ctx context.Context) (checkpoint.Tensor, error) {
	var some [][]int32
	all := 0
	for _, ids := range r.windows {
		all += len(ids)
	}
	// Evenly spread windows: texts of all domains are among them.
	taken, passed := 0, 0
	for _, ids := range r.windows {
		passed += len(ids)
		if taken*all < passed*min(headTokens, all) {
			some = append(some, ids)
			taken += len(ids)
		}
	}
	s, err := r.d.Embed(ctx, some, nil)
	if err != nil {
		return nil, err
	}
	for range r.d.Config().Layers {
		if err := r.d.Layer(ctx, s, decoder.Options{}); err != nil {
			return nil, err
		}
		r.step(1)
	}
	x, err := r.d.Norm(s)
	if err != nil {
		return nil, err
	}
	got, err := r.quantize(ctx, -1, decoder.Input{Modules: []string{decoder.EmbedModule}, X: x}, nil, HeadDamping)
	if err != nil {
		return nil, err
	}
	return got[decoder.EmbedModule], nil
}

// layer runs one layer of both models in step.
func (r *run) layer(ctx context.Context, layer int, full, behind *decoder.State) error {
	pf, err := r.d.Begin(full)
	if err != nil {
		return err
	}
	pq, err := r.d.Begin(behind)
	if err != nil {
		return err
	}
	for pq.Next() && pf.Next() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("calibration: stopped in layer %d: %w", layer, err)
		}
		in := pf.Input()
		got, err := r.stage(ctx, layer, pq.Input(), &in.X)
		if err != nil {
			return err
		}
		if err := pq.Run(func(path string) (checkpoint.Tensor, error) { return got[path], nil }); err != nil {
			return err
		}
		if last := pq.Last() && layer == r.d.Config().Layers-1; last {
			break // nothing reads what the original model computes from here on
		}
		if err := pf.Run(nil); err != nil {
			return err
		}
	}
	if pq.Last() && layer == r.d.Config().Layers-1 {
		pq.Next()
		return pq.Err()
	}
	// Both have the same stages: full has not noticed the end yet.
	if pq.Err() == nil {
		pf.Next()
	}
	if err := pq.Err(); err != nil {
		return err
	}
	return pf.Err()
}

// stage quantizes modules with one input. full is the input in the unquantized
// model, if in is another one.
func (r *run) stage(ctx context.Context, layer int, in decoder.Input, full *decoder.Matrix) (map[string]checkpoint.Tensor, error) {
	return r.quantize(ctx, layer, in, full, LayerDamping)
}

func (r *run) quantize(ctx context.Context, layer int, in decoder.Input, full *decoder.Matrix, damping float64) (map[string]checkpoint.Tensor, error) {
	got := map[string]checkpoint.Tensor{}
	var todo []string
	want := Nothing
	for _, path := range in.Modules {
		w := r.o.Wants(path).What
		if w == Nothing {
			continue
		}
		if t, ok := r.o.Have(path); ok {
			got[path] = t
			continue
		}
		todo = append(todo, path)
		want = max(want, w)
	}
	if len(todo) == 0 {
		return got, nil
	}
	h := NewHessian(in.X.Cols, want != Full)
	h.Add(in.X)
	away := drifted{full: full, x: in.X}
	if full == nil || want != Full || r.o.Correction == 0 {
		away.full = nil
	}
	factors := map[space]*quant.Feedback{}
	for _, path := range todo {
		w, ok := r.d.Source().Tensor(path + ".weight")
		if !ok {
			return nil, fmt.Errorf("calibration: tensor %q is missing", path+".weight")
		}
		m := &Module{Path: path, Layer: layer, Weight: w, Hessian: h, Damping: damping, factors: factors}
		if want := r.o.Wants(path); away.full != nil && want.What == Full {
			feedback := m.Feedback
			if want.Turned {
				feedback = m.TurnedFeedback
			}
			f, err := feedback(want.Group)
			if err != nil {
				return nil, err
			}
			if m.Weight, err = r.correct(m, f, &away, len(todo) == 1); err != nil {
				return nil, err
			}
			m.Corrected = true
		}
		t, err := r.o.Quantize(ctx, m)
		if err != nil {
			return nil, err
		}
		got[path] = t
	}
	return got, nil
}

// correct moves a matrix towards the outputs of the unquantized model.
func (r *run) correct(m *Module, f *quant.Feedback, away *drifted, alone bool) (checkpoint.Tensor, error) {
	w, err := checkpoint.ReadAll(m.Weight)
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	y := away.product(w, m.Hessian.Cols, alone)
	f.Solve(y)
	kernel.MulScalar(y, y, float32(r.o.Correction))
	kernel.Add(y, y, w)
	return corrected{m.Weight, y}, nil
}

// corrected is a tensor with other values, in float32.
type corrected struct {
	checkpoint.Tensor
	data []float32
}

func (c corrected) ReadFloat32(dst []float32, off int) error {
	copy(dst, c.data[off:off+len(dst)])
	return nil
}
