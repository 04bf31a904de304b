package mlpackage

import (
	"bytes"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	manifestFile    = "Manifest.json"
	manifestVersion = "1.0.0"
	dataDir         = "Data"
	author          = "com.apple.CoreML"
	modelPath       = author + "/model.mlmodel"
	weightsPath     = author + "/weights"
	weightsFile     = "weight.bin"
	weightsName     = "weights"
)

type manifest struct {
	FileFormatVersion   string                  `json:"fileFormatVersion"`
	ItemInfoEntries     map[string]manifestItem `json:"itemInfoEntries"`
	RootModelIdentifier string                  `json:"rootModelIdentifier"`
}

type manifestItem struct {
	Author      string `json:"author"`
	Description string `json:"description"`
	Name        string `json:"name"`
	Path        string `json:"path"`
}

// newManifest lists the model and, if there are any, the weights.
func newManifest(withWeights bool) manifest {
	model := identifier(modelPath)
	m := manifest{
		FileFormatVersion:   manifestVersion,
		RootModelIdentifier: model,
		ItemInfoEntries: map[string]manifestItem{
			model: {author, "CoreML Model Specification", path.Base(modelPath), modelPath},
		},
	}
	if withWeights {
		m.ItemInfoEntries[identifier(weightsPath)] = manifestItem{author, "CoreML Model Weights", weightsName, weightsPath}
	}
	return m
}

// identifier derives a name-based UUID (version 5) from an item's path, so that
// equal packages have equal manifests.
func identifier(name string) string {
	h := sha1.Sum([]byte("github.com/smelt-go/smelt/mlpackage\x00" + name))
	h[6] = h[6]&0x0f | 0x50
	h[8] = h[8]&0x3f | 0x80
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

func (m manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "    ")
	return append(b, '\n'), err
}

// parseManifest decodes and checks a manifest; paths are cleaned and known to
// stay inside the data directory.
func parseManifest(b []byte) (*manifest, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("not valid UTF-8")
	}
	if err := uniqueKeys(json.NewDecoder(bytes.NewReader(b))); err != nil {
		return nil, err
	}
	// A pointer for each mandatory key tells absent from empty.
	var raw struct {
		FileFormatVersion   *string `json:"fileFormatVersion"`
		RootModelIdentifier *string `json:"rootModelIdentifier"`
		ItemInfoEntries     map[string]struct {
			Author      *string `json:"author"`
			Description *string `json:"description"`
			Name        *string `json:"name"`
			Path        *string `json:"path"`
		} `json:"itemInfoEntries"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, err
	}
	if raw.FileFormatVersion == nil || raw.RootModelIdentifier == nil || raw.ItemInfoEntries == nil {
		return nil, errors.New("fileFormatVersion, itemInfoEntries and rootModelIdentifier are mandatory")
	}
	if *raw.FileFormatVersion != manifestVersion {
		return nil, fmt.Errorf("fileFormatVersion %q, only %q is supported", *raw.FileFormatVersion, manifestVersion)
	}
	m := &manifest{*raw.FileFormatVersion, map[string]manifestItem{}, *raw.RootModelIdentifier}
	for id, item := range raw.ItemInfoEntries {
		if item.Author == nil || item.Description == nil || item.Name == nil || item.Path == nil {
			return nil, fmt.Errorf("item %s: author, description, name and path are mandatory", id)
		}
		clean := path.Clean(*item.Path)
		if path.IsAbs(clean) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsAny(clean, "\\\x00") {
			return nil, fmt.Errorf("item %q: path %q leaves the package", *item.Name, *item.Path)
		}
		m.ItemInfoEntries[id] = manifestItem{*item.Author, *item.Description, *item.Name, clean}
	}
	if _, ok := m.ItemInfoEntries[m.RootModelIdentifier]; !ok {
		return nil, fmt.Errorf("rootModelIdentifier %q names no item", m.RootModelIdentifier)
	}
	return m, nil
}

// model is the path of the model file below the data directory.
func (m *manifest) model() string { return m.ItemInfoEntries[m.RootModelIdentifier].Path }

// weights is the path of the weight directory below the data directory, or "".
func (m *manifest) weights() (string, error) {
	found := ""
	for _, item := range m.ItemInfoEntries {
		if item.Name != weightsName || item.Author != author {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("two items are named %q", weightsName)
		}
		found = item.Path
	}
	return found, nil
}

// uniqueKeys rejects objects that name a key twice, of which encoding/json would
// silently keep the last.
func uniqueKeys(d *json.Decoder) error {
	const deepest = 16 // a manifest needs 3
	var value func(depth int) error
	value = func(depth int) error {
		if depth > deepest {
			return errors.New("nested too deeply")
		}
		t, err := d.Token()
		if err != nil {
			return err
		}
		open, ok := t.(json.Delim)
		if !ok {
			return nil
		}
		seen := map[string]bool{}
		for d.More() {
			if open == '{' {
				k, err := d.Token()
				if err != nil {
					return err
				}
				key, _ := k.(string)
				if seen[key] {
					return fmt.Errorf("duplicate key %q", key)
				}
				seen[key] = true
			}
			if err := value(depth + 1); err != nil {
				return err
			}
		}
		_, err = d.Token()
		return err
	}
	if err := value(0); err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}
