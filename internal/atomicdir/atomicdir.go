// Package atomicdir writes a directory so that it appears whole or not at all.
//
// The content is built in a hidden sibling (".NAME.partial"), synced, and renamed
// into place. A run that was killed leaves only that sibling, which the next run
// removes. Replacing an existing directory takes two renames; a run killed between
// them leaves ".NAME.old", which the next run moves back before it starts.
package atomicdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Options says how a directory appears.
type Options struct {
	// Force replaces an existing directory.
	Force bool
	// NoSync leaves it to the system when data reach the disk: after a crash of
	// the machine the directory may be there without them. It suits a directory
	// inside of one that is synced later.
	NoSync bool
}

// Write creates the directory path with what fill puts into the directory it is
// given. An existing path is refused unless o.Force is set. When fill fails, path
// is left as it was. Two writers of the same path at a time are not supported.
func Write(path string, o Options, fill func(dir string) error) (err error) {
	path = filepath.Clean(path)
	parent, base := filepath.Split(path)
	if base == "" || base == "." || base == ".." || base == string(filepath.Separator) {
		return fmt.Errorf("%s: not a name for a new directory", path)
	}
	partial := filepath.Join(parent, "."+base+".partial")
	old := filepath.Join(parent, "."+base+".old")
	exists, err := recoverOld(path, old)
	if err != nil {
		return err
	}
	if exists && !o.Force {
		return fmt.Errorf("%s: %w (pass force to replace it)", path, fs.ErrExist)
	}
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("%s: remove what an earlier run left: %w", path, err)
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(partial)
		}
	}()
	if err := fill(partial); err != nil {
		return err
	}
	if !o.NoSync {
		if err := syncTree(partial); err != nil {
			return fmt.Errorf("%s: sync: %w", path, err)
		}
	}
	if exists {
		if err := os.Rename(path, old); err != nil {
			return fmt.Errorf("%s: move the existing one aside: %w", path, err)
		}
	}
	if err := os.Rename(partial, path); err != nil {
		if exists {
			err = errors.Join(err, os.Rename(old, path))
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	if !o.NoSync {
		if err := syncPath(filepath.Dir(path)); err != nil {
			return fmt.Errorf("%s: sync: %w", path, err)
		}
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("%s: remove the replaced one: %w", path, err)
	}
	return nil
}

// recoverOld undoes a replacement that was killed half way and reports whether
// path exists.
func recoverOld(path, old string) (bool, error) {
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	exists := err == nil
	if _, err := os.Lstat(old); err != nil {
		return exists, nil
	}
	if exists {
		return true, os.RemoveAll(old)
	}
	return true, os.Rename(old, path)
}

func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || d.Type().IsRegular() {
			return syncPath(path)
		}
		return nil
	})
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
