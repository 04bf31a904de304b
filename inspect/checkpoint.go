package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/tokenizer"
)

// Checkpoint describes safetensors files and the config.json beside them.
type Checkpoint struct {
	// Config is the normalised configuration, nil if there is no usable one.
	Config *models.Config `json:"config,omitempty"`
	// Problem says why the checkpoint cannot be converted as it is; empty if
	// it can. A lone safetensors file has no problem and no configuration.
	Problem    string       `json:"problem,omitempty"`
	Files      []File       `json:"files"`
	Tensors    []Tensor     `json:"tensors"`
	DTypes     []DTypeTotal `json:"dtypes"`
	Parameters int64        `json:"parameters"` // elements of all tensors that are not waived
	Bytes      int64        `json:"bytes"`      // of all tensors
	Waived     int          `json:"waived_tensors"`
	// WaivedBytes are the bytes of the tensors that a conversion leaves out.
	WaivedBytes int64      `json:"waived_bytes"`
	Tokenizer   *Tokenizer `json:"tokenizer,omitempty"`
}

// File is one file and its size on disk.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Tensor is one tensor of a checkpoint, under its name in the file.
type Tensor struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
	// Use is "used", "waived", or empty where there is no usable
	// configuration to tell.
	Use    models.Use `json:"use,omitempty"`
	Reason string     `json:"reason,omitempty"` // why it is waived
}

// DTypeTotal sums up the tensors of one element type.
type DTypeTotal struct {
	DType   string `json:"dtype"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// Tokenizer describes a tokenizer.json.
type Tokenizer struct {
	VocabSize int    `json:"vocab_size,omitempty"`
	Problem   string `json:"problem,omitempty"` // why it cannot be used
}

// ReadCheckpoint describes the checkpoint at path, a directory, a safetensors
// file or an index file. Only headers and small files are read.
func ReadCheckpoint(path string, o Options) (*Checkpoint, error) {
	ck, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	r := &Checkpoint{Files: []File{}, Tensors: []Tensor{}, DTypes: []DTypeTotal{}}
	for _, f := range ck.Files() {
		st, err := os.Stat(f)
		if err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		r.Files = append(r.Files, File{filepath.Base(f), st.Size()})
	}
	uses := map[string]models.WeightUse{}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		view := ck.Text()
		for _, w := range view.Waived() {
			uses[w.Name] = models.WeightUse{Use: models.Waived, Reason: w.Reason}
		}
		if err := r.configure(path, view, o, uses); err != nil {
			return nil, err
		}
		r.Tokenizer = readTokenizer(path)
	}
	r.count(ck, uses)
	return r, nil
}

// configure reads config.json and adds to uses what it makes of the tensors.
func (r *Checkpoint) configure(dir string, view *checkpoint.View, o Options, uses map[string]models.WeightUse) error {
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		r.Problem = fmt.Sprintf("%s has no config.json (is it a Hugging Face model directory?)", dir)
		return nil
	}
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	cfg, err := models.ParseConfig(bytes.NewReader(config), o.IgnoreKeys...)
	if err != nil {
		r.Problem = fmt.Sprintf("%s: %v", dir, err)
		return nil
	}
	r.Config = cfg
	m, err := models.New(bytes.NewReader(config), view, o.IgnoreKeys...)
	if err != nil {
		r.Problem = fmt.Sprintf("%s: %v", dir, err)
		return nil
	}
	for _, u := range m.Weights() {
		name, ok := view.Original(u.Name)
		if !ok {
			name = u.Name
		}
		uses[name] = u
	}
	return nil
}

// count lists and sums up the tensors.
func (r *Checkpoint) count(ck *checkpoint.Checkpoint, uses map[string]models.WeightUse) {
	totals := map[string]*DTypeTotal{}
	for _, name := range ck.Names() {
		t, _ := ck.Tensor(name)
		u := uses[name]
		d := Tensor{Name: name, DType: t.DType().String(), Shape: t.Shape(), Bytes: checkpoint.NumBytes(t), Use: u.Use, Reason: u.Reason}
		r.Tensors = append(r.Tensors, d)
		r.Bytes += d.Bytes
		if u.Use == models.Waived {
			r.Waived++
			r.WaivedBytes += d.Bytes
		} else {
			r.Parameters += int64(checkpoint.NumElements(t))
		}
		if totals[d.DType] == nil {
			totals[d.DType] = &DTypeTotal{DType: d.DType}
		}
		totals[d.DType].Tensors++
		totals[d.DType].Bytes += d.Bytes
	}
	for _, t := range totals {
		r.DTypes = append(r.DTypes, *t)
	}
	slices.SortFunc(r.DTypes, func(a, b DTypeTotal) int { return strings.Compare(a.DType, b.DType) })
}

// readTokenizer describes the tokenizer.json in dir, nil if there is none.
func readTokenizer(dir string) *Tokenizer {
	path := filepath.Join(dir, "tokenizer.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	t, err := tokenizer.Load(path)
	if err != nil {
		return &Tokenizer{Problem: err.Error()}
	}
	return &Tokenizer{VocabSize: t.VocabSize()}
}
