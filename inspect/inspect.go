package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/smelt-go/smelt/chunking"
)

// Kind says what a path holds.
type Kind string

// What a path may hold.
const (
	KindCheckpoint Kind = "checkpoint" // a Hugging Face directory, or tensors without a config.json
	KindPackage    Kind = "package"    // an .mlpackage
	KindBundle     Kind = "bundle"     // chunks with a contract.json
)

// Report describes one path. Exactly one of the pointers is set, as Kind says.
type Report struct {
	Path       string      `json:"path"`
	Kind       Kind        `json:"kind"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Package    *Package    `json:"package,omitempty"`
	Bundle     *Bundle     `json:"bundle,omitempty"`
}

// Options of Path.
type Options struct {
	// IgnoreKeys are config.json keys to accept unread, as in a conversion.
	IgnoreKeys []string
}

// Detect finds out what path holds by the names in it.
func Detect(path string) (Kind, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("inspect: %w", err)
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	switch {
	case !st.IsDir():
		if strings.HasSuffix(path, ".safetensors") || strings.HasSuffix(path, ".safetensors.index.json") {
			return KindCheckpoint, nil
		}
		return "", fmt.Errorf("inspect: %s: a file, but not of safetensors (give a model directory, an .mlpackage or a bundle)", path)
	case has(chunking.ContractFile):
		return KindBundle, nil
	case has("Manifest.json"):
		return KindPackage, nil
	case has("config.json"), has("model.safetensors"), has("model.safetensors.index.json"):
		return KindCheckpoint, nil
	}
	return "", fmt.Errorf("inspect: %s: neither a checkpoint (config.json), nor a package (Manifest.json), nor a bundle (%s)", path, chunking.ContractFile)
}

// Path describes what path holds.
func Path(path string, o Options) (*Report, error) {
	kind, err := Detect(path)
	if err != nil {
		return nil, err
	}
	r := &Report{Path: path, Kind: kind}
	switch kind {
	case KindCheckpoint:
		r.Checkpoint, err = ReadCheckpoint(path, o)
	case KindPackage:
		r.Package, err = ReadPackage(path)
	case KindBundle:
		r.Bundle, err = ReadBundle(path)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}
