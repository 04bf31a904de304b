//go:build unix

package checkpoint

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int64) ([]byte, error) {
	if size == 0 || size > math.MaxInt {
		return nil, errors.New("size cannot be mapped")
	}
	return unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
}

func unmap(b []byte) error { return unix.Munmap(b) }

// dropPages is a hint: failing changes nothing but the resident set.
func dropPages(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }
