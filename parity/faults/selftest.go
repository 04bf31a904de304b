package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/parity"
)

// Source is a checkpoint with its recording.
type Source struct {
	Name, Dir, Golden string
}

// Options configures SelfTest.
type Options struct {
	// Only names the faults to inject; nil means all.
	Only []string
	// Everywhere injects a fault into every source that can have it, not just
	// the first.
	Everywhere bool
	// Progress, if not nil, is told how many faults have been injected.
	Progress func(stage string, done, total int)
}

// SelfTest converts the checkpoints in several forms, holds the good bundles
// against all gates, and injects the faults of the catalog one by one, each into
// the first bundle that has what it breaks. An error means that the test could
// not be run; a fault that escapes shows in the table.
func SelfTest(ctx context.Context, sources []Source, o Options) (*Table, error) {
	work, err := os.MkdirTemp("", "smelt-faults-")
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	defer os.RemoveAll(work)
	faults, err := choose(o.Only)
	if err != nil {
		return nil, err
	}
	t := &Table{FalseAlarms: []string{}}
	run := &selfTest{ctx: ctx, work: work, forms: map[string][]*form{}}
	for i := range sources {
		t.Checkpoints = append(t.Checkpoints, sources[i].Name)
		for _, name := range []string{formExact, formTwo, formMany, formState, formCodes, formWide, formApp} {
			run.forms[name] = append(run.forms[name], &form{name: name, source: &sources[i]})
		}
	}
	rows := make([][]Row, len(faults))
	errs := make([]error, len(faults))
	next := make(chan int)
	var mu sync.Mutex // of done
	done := 0
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	run.ctx = ctx
	for range max(1, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				if rows[i], errs[i] = run.inject(&faults[i], i, o.Everywhere); errs[i] != nil {
					errs[i] = fmt.Errorf("faults: %s: %w", faults[i].Name, errs[i])
					stop()
				}
				if o.Progress != nil {
					mu.Lock()
					done++
					o.Progress("injecting faults", done, len(faults))
					mu.Unlock()
				}
			}
		})
	}
	for i := range faults {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, r := range rows {
		t.Rows = append(t.Rows, r...)
	}
	for _, name := range []string{formExact, formTwo, formMany, formState, formCodes, formWide, formApp} {
		for _, f := range run.forms[name] {
			if f.dir != "" {
				t.Good++
			}
			t.FalseAlarms = append(t.FalseAlarms, f.alarms...)
		}
	}
	return t, nil
}

func choose(only []string) ([]Fault, error) {
	all := Catalog()
	if only == nil {
		return all, nil
	}
	for _, name := range only {
		if !slices.ContainsFunc(all, func(f Fault) bool { return f.Name == name }) {
			return nil, fmt.Errorf("faults: there is no fault %q", name)
		}
	}
	return slices.DeleteFunc(all, func(f Fault) bool { return !slices.Contains(only, f.Name) }), nil
}

type selfTest struct {
	ctx   context.Context
	work  string
	forms map[string][]*form // by name, one a source
}

// inject breaks copies of good bundles and asks the gates.
func (s *selfTest) inject(f *Fault, index int, everywhere bool) ([]Row, error) {
	var rows []Row
	name := f.Form
	if name == "" {
		name = formTwo
	}
	for _, form := range s.forms[name] {
		if err := form.make(s.ctx, s.work); err != nil {
			return nil, err
		}
		if form.skip {
			continue
		}
		row, ok, err := s.one(f, form, index)
		if err != nil {
			return nil, err
		}
		if ok {
			if rows = append(rows, row); !everywhere {
				break
			}
		}
	}
	if len(rows) == 0 {
		rows = append(rows, Row{Fault: f.Name, Family: f.Family, What: f.What, Skipped: true})
	}
	return rows, nil
}

// one breaks a copy of one good bundle. ok is false if the fault does not
// apply to it.
func (s *selfTest) one(f *Fault, form *form, index int) (row Row, ok bool, err error) {
	start := time.Now()
	row = Row{Fault: f.Name, Family: f.Family, What: f.What, Checkpoint: form.source.Name, Form: form.name, cause: f.cause(), localizable: len(f.Sites) > 0 || f.Says != ""}
	b := &bundle{ctx: s.ctx, dir: form.dir}
	if b.contract, err = chunking.ReadContract(form.dir); err != nil {
		return row, false, err
	}
	if f.Applies != nil && !f.Applies(b.contract) || f.when != nil && !f.when(b) {
		return row, false, nil
	}
	if f.host == nil {
		dir := filepath.Join(s.work, fmt.Sprintf("broken-%d-%s", index, form.source.Name))
		if b, err = copyBundle(s.ctx, form.dir, dir); err != nil {
			return row, false, err
		}
		defer func() {
			for _, suffix := range []string{"", ".golden.safetensors", ".tuned"} {
				_ = os.RemoveAll(dir + suffix)
			}
		}()
	}
	b.form, b.source, b.golden, b.checkpoint = form, form.source, form.goldenFile(), form.checkpointDir()
	if err := f.inject(b); err != nil {
		return row, false, err
	}
	rep, err := parity.Verify(s.ctx, b.dir, parity.Options{Golden: b.golden, Checkpoint: b.checkpoint, Tokens: form.tokens,
		Gates: form.gates, StopAtFailure: true, Host: f.host})
	if err != nil {
		return row, false, err
	}
	row.take(f, rep)
	row.Seconds = time.Since(start).Seconds()
	return row, true, nil
}

// take fills in what the gates said.
func (r *Row) take(f *Fault, rep *parity.Report) {
	failed := rep.Failed()
	if len(failed) == 0 {
		return
	}
	g := rep.Gate(failed[0])
	r.Gate, r.Reason = g.ID, g.Reason
	r.Caught = slices.Contains(f.Gates, g.ID)
	r.Signature = rep.Signature()
	if g.Finding != nil {
		var at []string
		for _, x := range []string{g.Finding.Chunk, g.Finding.Function, g.Finding.Site} {
			if x != "" {
				at = append(at, x)
			}
		}
		r.Named = strings.Join(at, " ")
		r.Localized = slices.ContainsFunc(f.Sites, func(s string) bool {
			return g.Finding.Site == s || strings.HasSuffix(g.Finding.Site, "."+s)
		})
	}
	if f.Says != "" && strings.Contains(g.Reason, f.Says) {
		r.Localized = true
		r.Named = strings.TrimSpace(fmt.Sprintf("%s %q", r.Named, f.Says))
	}
	if g.Cause != nil {
		r.LooksLike = g.Cause.Text
		r.Recognised = g.Cause.Text == f.cause() || slices.Contains(g.Cause.Or, f.cause())
	}
}
