package checkpoint

import (
	"bufio"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// partialSuffix marks files that are being written.
const partialSuffix = ".partial"

// partial is a file on its way: a hidden sibling of its destination that is
// renamed into place when it is complete.
type partial struct {
	dest string
	f    *os.File
	w    *bufio.Writer
}

// newPartial starts a file. It clears siblings that writers of the same
// destination left behind when they were killed.
func newPartial(dest string) (*partial, error) {
	dir, base := filepath.Split(dest)
	prefix := "." + base + "."
	clearStale(dir, prefix)
	var err error
	for range 10 {
		var f *os.File
		f, err = os.OpenFile(dir+prefix+rand.Text()+partialSuffix, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return nil, err
		}
		p := &partial{dest: dest, f: f}
		// Another writer that clears up may catch the file before it is locked.
		if err = lock(f); err == nil {
			if _, err = os.Stat(f.Name()); err == nil {
				p.w = bufio.NewWriterSize(f, copyBytes/4) // larger pieces go past it
				return p, nil
			}
		}
		p.discard()
	}
	return nil, err
}

func clearStale(dir, prefix string) {
	if dir == "" {
		dir = "."
	}
	siblings, err := os.ReadDir(dir)
	if err != nil {
		return // creating the file reports it
	}
	for _, s := range siblings {
		if strings.HasPrefix(s.Name(), prefix) && strings.HasSuffix(s.Name(), partialSuffix) {
			removeUnlocked(filepath.Join(dir, s.Name()))
		}
	}
}

// finish makes the content durable; publish makes it visible.
func (p *partial) finish() error {
	err := p.w.Flush()
	if err == nil {
		err = p.f.Sync()
	}
	p.w = nil
	return err
}

func (p *partial) publish() error {
	name := p.f.Name()
	err := p.f.Close()
	if err == nil {
		err = os.Rename(name, p.dest)
	}
	if err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// discard removes an unpublished file.
func (p *partial) discard() {
	p.f.Close()
	os.Remove(p.f.Name())
}

// syncDir makes renames in dir durable. Not every file system can; the files
// themselves are complete either way.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		d.Close()
	}
}
