package conversion

import (
	"io"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/chunking"
)

// linkTree makes to a copy of the directory from, of hard links where the file
// system has them.
func linkTree(from, to string) error {
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o755)
	}
	for _, e := range entries {
		if err != nil {
			break
		}
		err = linkOrCopy(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
	}
	return err
}

func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}

// linkEqual makes files of equal contents one, where the file system has hard
// links.
func linkEqual(dir string, m *chunking.Manifest) error {
	first := map[string]string{}
	for _, f := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		same, ok := first[f.SHA256]
		if !ok {
			first[f.SHA256] = path
			continue
		}
		a, err := os.Stat(same)
		if err != nil {
			return err
		}
		b, err := os.Stat(path)
		if err != nil {
			return err
		}
		if os.SameFile(a, b) {
			continue
		}
		spare := path + ".link"
		if os.Link(same, spare) != nil {
			return nil // not here
		}
		if err := os.Rename(spare, path); err != nil {
			return err
		}
	}
	return nil
}
