package chunking

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// ManifestFile is the name of the manifest inside a bundle that has one.
const ManifestFile = "manifest.json"

// Manifest lists all files of a bundle but itself, by path.
type Manifest struct {
	Files []ManifestEntry `json:"files"`
}

// ManifestEntry is one file. Path is relative, with slashes.
type ManifestEntry struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// NewManifest reads all files below dir.
func NewManifest(ctx context.Context, dir string) (*Manifest, error) {
	m := &Manifest{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || rel == ManifestFile {
			return err
		}
		m.Files = append(m.Files, ManifestEntry{Path: filepath.ToSlash(rel)})
		return nil
	})
	if err == nil {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(runtime.GOMAXPROCS(0))
		for i := range m.Files {
			f := &m.Files[i]
			g.Go(func() (err error) {
				f.Size, f.SHA256, err = digest(ctx, filepath.Join(dir, filepath.FromSlash(f.Path)))
				return err
			})
		}
		err = g.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("chunking: manifest: %w", err)
	}
	slices.SortFunc(m.Files, func(a, b ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
	return m, nil
}

func digest(ctx context.Context, path string) (int64, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h, n := sha256.New(), int64(0)
	for {
		if err := ctx.Err(); err != nil {
			return 0, "", err
		}
		k, err := io.CopyN(h, f, 16<<20)
		if n += k; errors.Is(err, io.EOF) {
			return n, hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return 0, "", err
		}
	}
}

// Write stores the manifest in dir.
func (m *Manifest) Write(dir string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ManifestFile), append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("chunking: manifest: %w", err)
	}
	return nil
}

// ReadManifest reads the manifest of a bundle; nil if it has none.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var m Manifest
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("chunking: %s: %w", path, err)
	}
	for _, f := range m.Files {
		if !fs.ValidPath(f.Path) {
			return nil, fmt.Errorf("chunking: %s: %q is not a path inside the bundle", path, f.Path)
		}
	}
	return &m, nil
}

// Check compares the files' sizes with the manifest, and with contents also
// their hashes. The first file that is missing or differs is an error.
func (m *Manifest) Check(ctx context.Context, dir string, contents bool) error {
	for _, f := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("chunking: %s is missing, which %s lists (copied in part?)", path, ManifestFile)
		case err != nil:
			return fmt.Errorf("chunking: %w", err)
		case info.Size() != f.Size:
			return fmt.Errorf("chunking: %s has %d bytes, %s says %d (copied in part?)", path, info.Size(), ManifestFile, f.Size)
		}
		if !contents {
			continue
		}
		_, sum, err := digest(ctx, path)
		if err != nil {
			return fmt.Errorf("chunking: %w", err)
		}
		if sum != f.SHA256 {
			return fmt.Errorf("chunking: %s has SHA-256 %.12s…, %s says %.12s…", path, sum, ManifestFile, f.SHA256)
		}
	}
	return nil
}
