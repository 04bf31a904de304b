//go:build !linux

package diskspace

import "os"

// Reserve does nothing: files grow as they are written.
func Reserve(*os.File, int64) {}
