package speculate_test

import (
	"testing"

	"github.com/smelt-go/smelt/chunking"
)

func head(t testing.TB, s string) chunking.Head {
	t.Helper()
	h, err := chunking.ParseHead(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
