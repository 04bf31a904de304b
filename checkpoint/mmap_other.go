//go:build !unix

package checkpoint

import (
	"errors"
	"os"
)

// Without a mapping, Raw is refused and callers read through ReadAt.
func mapFile(*os.File, int64) ([]byte, error) { return nil, errors.ErrUnsupported }
func unmap([]byte) error                      { return nil }
func dropPages([]byte)                        {}
