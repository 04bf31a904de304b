//go:build unix && !solaris && !illumos && !aix

package checkpoint

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock marks a partial file as in use for as long as its writer lives.
func lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// removeUnlocked removes a partial file whose writer is gone.
func removeUnlocked(path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if lock(f) == nil {
		os.Remove(path)
	}
}
