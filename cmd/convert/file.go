package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// fresh refuses an output file that exists, unless force is set.
func fresh(path string, force bool) error {
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return fmt.Errorf("%s is a directory (give the name of a file)", path)
	case err == nil && !force:
		return fmt.Errorf("%s exists already (use --force to replace it)", path)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%s: its directory does not exist (create it first)", path)
	}
	return nil
}

// writeWhole writes a file that appears whole or not at all.
func writeWhole(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".partial-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
