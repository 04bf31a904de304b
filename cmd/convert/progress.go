package main

import (
	"context"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bars shows what long work is doing, on standard error and only if that is a
// terminal. The zero value shows nothing. It is for one goroutine.
type bars struct {
	pool  *mpb.Progress
	bar   *mpb.Bar
	stage string
}

func (s *session) newBars(ctx context.Context) *bars {
	if !terminal(s.stderr) {
		return &bars{}
	}
	return &bars{pool: mpb.NewWithContext(ctx, mpb.WithOutput(s.stderr), mpb.WithWidth(40))}
}

// update is a progress callback: stage names the work, done and total are
// bytes or steps of it.
func (b *bars) update(stage string, done, total int64) {
	if b.pool == nil {
		return
	}
	if stage != b.stage {
		b.finish()
		unit := decor.CountersKiloByte("% .1f / % .1f")
		if total < 1000 {
			unit = decor.CountersNoUnit("%d / %d")
		}
		b.stage = stage
		b.bar = b.pool.AddBar(max(total, 1), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(stage, decor.WC{W: 22, C: decor.DindentRight})),
			mpb.AppendDecorators(unit, decor.Name("  "), decor.Elapsed(decor.ET_STYLE_MMSS),
				decor.Name(", about "), decor.AverageETA(decor.ET_STYLE_MMSS), decor.Name(" left")))
	}
	b.bar.SetCurrent(done)
}

// finish ends the current bar, complete or not.
func (b *bars) finish() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.bar, b.stage = nil, ""
	}
}

// close removes what is shown. Print results only afterwards.
func (b *bars) close() {
	if b.pool != nil {
		b.finish()
		b.pool.Wait()
	}
}
