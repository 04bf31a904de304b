// Package alloctest asserts that hot code allocates nothing.
package alloctest

import (
	"sync"
	"testing"
)

// Zero fails t if f allocates, on average over n calls after the first. Under
// the race detector, which makes sync.Pool drop items at random, f only runs.
func Zero(t *testing.T, n int, f func()) {
	t.Helper()
	f()
	if got := testing.AllocsPerRun(n, f); got != 0 && poolsKeep() {
		t.Errorf("%v allocations a call", got)
	}
}

// poolsKeep says that sync.Pool gives back what it gets.
func poolsKeep() bool {
	var p sync.Pool
	for range 100 {
		p.Put(new(int))
		if p.Get() == nil {
			return false
		}
	}
	return true
}
