package diskspace

import (
	"os"
	"path/filepath"
	"testing"
)

// What was reserved and not written is cut off by Truncate; nothing that was
// written changes.
func TestReserve(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int64{0, -1, 1 << 20, 1 << 62} {
		Reserve(f, size)
	}
	if _, err := f.WriteAt([]byte("text"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(4); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
}
