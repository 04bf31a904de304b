package parity

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// Options configures Verify. At least one of Golden and Checkpoint is needed;
// with both, the golden gives the expected results and the checkpoint the
// intermediates for bisection.
type Options struct {
	Golden     string // safetensors file, see ReadGolden
	Checkpoint string // Hugging Face directory
	Prompts    string // text file, a prompt a line; empty: a built-in prompt
	// Tokens cuts recordings and prompts; 0 means all of them.
	Tokens int
	// Modes are the rungs of the precision ladder; nil means fp32, then typed.
	Modes []runtime.Mode
	// Gates are the IDs of the gates to run; nil means all.
	Gates []string
	// StopAtFailure leaves out the gates after the first that fails.
	StopAtFailure bool
	// Host, if set, makes the host that drives the bundle; nil means NewHost.
	Host func(*engine.Engine) Host
	// Progress, if not nil, is told what is being done.
	Progress func(stage string, done, total int)
}

// Verify asks every gate about the bundle in dir. An error means that there
// is no verdict: something that the gates need is missing or unreadable. A
// bundle that is wrong gives a report whose Pass is false.
func Verify(ctx context.Context, dir string, opts Options) (*Report, error) {
	gates, err := choose(opts.Gates)
	if err != nil {
		return nil, err
	}
	s, err := openSubject(dir, opts)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.expect(ctx); err != nil {
		return nil, err
	}
	c := s.Contract
	rep := &Report{Bundle: dir, Architecture: c.Model.Architecture, Compute: c.Compute, KV: c.KV, Pass: true, Noise: Num(s.longest().Noise)}
	for _, r := range s.Recordings {
		rep.Reference = append(rep.Reference, r.Source)
		rep.Tokens += len(r.IDs)
	}
	for _, g := range gates {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		res, err := s.ask(ctx, g)
		if err != nil {
			return nil, err
		}
		res.ID, res.Proves = g.ID, g.Proves
		rep.Gates = append(rep.Gates, res)
		if res.Status == Fail {
			rep.Pass = false
			if opts.StopAtFailure {
				break
			}
		}
	}
	return rep, rep.diagnose(s)
}

// choose picks gates by ID, in their own order.
func choose(ids []string) ([]Gate, error) {
	all := Gates()
	if len(ids) == 0 {
		return all, nil
	}
	for _, id := range ids {
		if !slices.ContainsFunc(all, func(g Gate) bool { return g.ID == id }) {
			return nil, fmt.Errorf("parity: there is no gate %q", id)
		}
	}
	return slices.DeleteFunc(all, func(g Gate) bool { return !slices.Contains(ids, g.ID) }), nil
}

// ask runs one gate and bisects its failure.
func (s *Subject) ask(ctx context.Context, g Gate) (*Result, error) {
	if why := g.Skip(s); why != "" {
		return &Result{Status: Skip, Reason: why}, nil
	}
	if s.broken && !slices.Contains([]string{"manifest", "source", "app", "tokenizer", "recording"}, g.ID) || s.unreadable() && g.ID == "source" {
		return &Result{Status: Skip, Reason: "the bundle cannot be opened"}, nil
	}
	start := time.Now()
	s.progress(g.ID, 0, 1)
	res, err := g.Run(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("parity: gate %s: %w", g.ID, err)
	}
	if res.Status == Fail && res.suspect != nil && res.Finding == nil {
		if res.Finding, err = s.bisect(ctx, res.suspect); err != nil {
			return nil, fmt.Errorf("parity: gate %s: bisection: %w", g.ID, err)
		}
		if res.Finding == nil {
			res.Reason += "; no named intermediate differs (look at what the host does with the results)"
		}
	}
	res.Seconds = time.Since(start).Seconds()
	s.progress(g.ID, 1, 1)
	return res, nil
}

// expect gets the expected results.
func (s *Subject) expect(ctx context.Context) error {
	o := s.opts
	if o.Golden == "" && o.Checkpoint == "" {
		return fmt.Errorf("parity: nothing to compare with (give a golden recording or a checkpoint)")
	}
	if o.Checkpoint != "" {
		if err := s.openReference(o.Checkpoint); err != nil {
			return err
		}
	}
	if o.Golden != "" {
		if o.Prompts != "" {
			return fmt.Errorf("parity: prompts go with a checkpoint; a golden recording has its own tokens")
		}
		rec, err := ReadGolden(o.Golden)
		if err != nil {
			return err
		}
		rec.cut(o.Tokens)
		s.golden = rec
		s.Recordings = []*Recording{rec}
		if s.codes != nil {
			// Compression changes the model: its own results are the judge.
			own, err := Record(ctx, s.Reference, rec.IDs, "reference decoder with the bundle's decoded weights, on the tokens of "+rec.Source)
			if err != nil {
				return err
			}
			own.Noise = rec.Noise
			s.Recordings = []*Recording{own}
		}
	} else {
		ids, names, err := prompts(s.Dir, o.Prompts, s.Contract, s.wanted())
		if err != nil {
			return err
		}
		for i := range ids {
			if o.Tokens > 0 {
				ids[i] = ids[i][:min(o.Tokens, len(ids[i]))]
			}
			s.progress("reference decoder", i, len(ids))
			rec, err := Record(ctx, s.Reference, ids[i], names[i])
			if err != nil {
				return err
			}
			s.Recordings = append(s.Recordings, rec)
		}
		s.progress("reference decoder", len(ids), len(ids))
	}
	for _, r := range s.Recordings {
		if r.Vocab != s.Contract.Model.Vocab {
			return fmt.Errorf("parity: %s has a vocabulary of %d, the bundle of %d (a recording of another model?)", r.Source, r.Vocab, s.Contract.Model.Vocab)
		}
	}
	return nil
}

// wanted is the number of tokens to compute where no prompt says it: past
// twice the window, and the whole of a small context.
func (s *Subject) wanted() int {
	w := s.Contract.Attention[models.Sliding].Window
	want := max(96, 2*w+8)
	if !s.large {
		want = max(want, 256)
	}
	return min(want, s.Contract.Context)
}
