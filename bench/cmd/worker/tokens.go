package main

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/tokenizer"
)

// worker holds the bundle that is open and its one session.
type worker struct {
	engine  *engine.Engine
	session *engine.Session
	prof    *os.File
}

func about() answer {
	a := answer{"kernel": kernel.Level(), "go": goruntime.Version(), "threads": goruntime.GOMAXPROCS(0)}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
				a[s.Key] = s.Value
			}
		}
	}
	return a
}

func (w *worker) open(r *request) (answer, error) {
	if err := w.close(); err != nil {
		return nil, err
	}
	start := time.Now()
	e, err := engine.Open(r.Bundle, engine.Options{Threads: r.Threads})
	if err != nil {
		return nil, err
	}
	w.engine, w.session = e, e.NewSession()
	return answer{"seconds": time.Since(start).Seconds()}, nil
}

func (w *worker) close() error {
	if w.engine == nil {
		return nil
	}
	err := w.engine.Close()
	w.engine, w.session = nil, nil
	goruntime.GC()
	return err
}

var errClosed = errors.New("worker: open a bundle first")

// prefill empties the session and feeds r.IDs in the largest pieces the bundle
// has a function for. r.Every asks for what the head says after every token, not
// only the last.
func (w *worker) prefill(r *request) (answer, error) {
	if w.session == nil {
		return nil, errClosed
	}
	w.session.Reset()
	var each func(engine.Row) error
	if r.Every {
		each = func(engine.Row) error { return nil }
	}
	start := time.Now()
	row, err := w.session.Prefill(r.IDs, each)
	if err != nil {
		return nil, err
	}
	return answer{"seconds": time.Since(start).Seconds(), "token": row.Token}, nil
}

// decode goes on from where the session stands, one token at a time.
func (w *worker) decode(r *request) (answer, error) {
	if w.session == nil {
		return nil, errClosed
	}
	var before, after goruntime.MemStats
	var tokens []int32
	goruntime.ReadMemStats(&before)
	start := time.Now()
	for _, id := range r.IDs {
		row, err := w.session.Decode(id)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, row.Token)
	}
	took := time.Since(start).Seconds()
	goruntime.ReadMemStats(&after)
	return answer{"seconds": took, "tokens": tokens,
		"mallocs": float64(after.Mallocs-before.Mallocs) / float64(len(r.IDs))}, nil
}

func encode(r *request) (answer, error) {
	tok, err := tokenizer.Load(r.Dir)
	if err != nil {
		return nil, err
	}
	ids, err := tok.Encode(r.Text, tokenizer.EncodeOptions{AddSpecial: true})
	return answer{"ids": ids}, err
}

// profile starts a CPU profile into file; an empty file ends it.
func (w *worker) profile(file string) error {
	if w.prof != nil {
		pprof.StopCPUProfile()
		err := w.prof.Close()
		w.prof = nil
		if err != nil {
			return err
		}
	}
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	w.prof = f
	return pprof.StartCPUProfile(f)
}
