package engine_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
)

// benchBundles are the tiny fixture and, if SMELT_BUNDLES names a directory,
// every bundle in it.
func benchBundles(b *testing.B) map[string]*engine.Engine {
	bundles := map[string]*engine.Engine{"gemma3 fixture": open(b, "gemma3", conversion.Options{Context: 512})}
	dirs, err := filepath.Glob(filepath.Join(os.Getenv("SMELT_BUNDLES"), "*", "contract.json"))
	if err != nil || os.Getenv("SMELT_BUNDLES") == "" {
		return bundles
	}
	for _, c := range dirs {
		dir := filepath.Dir(c)
		e, err := engine.Open(dir, engine.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { e.Close() })
		bundles[filepath.Base(dir)] = e
	}
	return bundles
}

// BenchmarkDecode measures a step of decode, host side included, at positions
// from 64 on.
func BenchmarkDecode(b *testing.B) {
	for name, e := range benchBundles(b) {
		b.Run(name, func(b *testing.B) {
			s := e.NewSession()
			limit := min(e.Contract().Context, 192)
			text := ids(64)
			b.ReportAllocs()
			// Starting over costs a prefill, which is not part of a step.
			for i := 0; b.Loop(); i++ {
				if i == 0 || s.Pos() == limit {
					b.StopTimer()
					s.Reset()
					if _, err := s.Prefill(text, nil); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				if _, err := s.Decode(text[i%64]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tok/s")
		})
	}
}

// BenchmarkPrefill measures a prompt of 512 tokens, of which only the last is
// answered.
func BenchmarkPrefill(b *testing.B) {
	for name, e := range benchBundles(b) {
		b.Run(name, func(b *testing.B) {
			s := e.NewSession()
			text := ids(512)
			run := func() {
				s.Reset()
				if _, err := s.Prefill(text, nil); err != nil {
					b.Fatal(err)
				}
			}
			run() // makes the buffers
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
			b.ReportMetric(float64(512*b.N)/b.Elapsed().Seconds(), "tok/s")
		})
	}
}
