package diskspace

import (
	"os"

	"golang.org/x/sys/unix"
)

// Reserve asks for room for size bytes in an empty file, which may grow to that
// size. It is a hint: a file system that cannot do it, or has no room, leaves
// the file as it is, and writing finds out.
func Reserve(f *os.File, size int64) {
	var fs unix.Statfs_t
	if size <= 0 || unix.Fstatfs(int(f.Fd()), &fs) != nil || fs.Type == unix.TMPFS_MAGIC {
		return // memory comes page by page either way
	}
	_ = unix.Fallocate(int(f.Fd()), 0, 0, size)
}
