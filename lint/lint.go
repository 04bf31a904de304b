package lint

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mlpackage"
)

// Severity grades a finding.
type Severity string

// The severities, worst first.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

func (s Severity) rank() int {
	switch s {
	case Error:
		return 0
	case Warning:
		return 1
	}
	return 2
}

// A Finding is one place, or several alike in one chunk, that breaks a rule.
type Finding struct {
	Severity Severity `json:"severity"`
	Rule     string   `json:"rule"` // Rule.ID
	Chunk    string   `json:"chunk,omitempty"`
	// Function names the function, or several separated by commas; empty if
	// the finding is about the chunk.
	Function string `json:"function,omitempty"`
	Kind     string `json:"kind,omitempty"`  // of the first operation
	Op       string `json:"op,omitempty"`    // name of the first operation
	Value    string `json:"value,omitempty"` // of the first value or parameter
	Count    int    `json:"count"`           // places alike, over all functions named
	Message  string `json:"message"`         // what is wrong, and what to do
	Source   string `json:"source"`
}

// Report is what lint found in a package or bundle.
type Report struct {
	Path     string    `json:"path"`
	Findings []Finding `json:"findings"` // worst first, then in the order of the rules
	Chunks   []Chunk   `json:"chunks"`
}

// Count returns the number of findings of a severity.
func (r *Report) Count(s Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// OK reports whether no finding is an error.
func (r *Report) OK() bool { return r.Count(Error) == 0 }

// Bundle checks every chunk of the bundle in dir, and the chunks together. The
// error is about files that cannot be read at all; what is wrong with readable
// ones is in the report.
func Bundle(dir string) (*Report, error) {
	c, err := chunking.ReadContract(dir)
	if err != nil {
		return nil, err
	}
	s := &subject{path: dir, contract: c}
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		if err := s.open(ch.Name, filepath.Join(dir, ch.File), ch.Last-ch.First); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s.report()
}

// Package checks the .mlpackage at path, written by any tool. The error is as
// for Bundle.
func Package(path string) (*Report, error) {
	s := &subject{path: path}
	name := strings.TrimSuffix(filepath.Base(path), ".mlpackage")
	if err := s.open(name, path, 0); err != nil {
		return nil, err
	}
	return s.report()
}

// open reads one package. layers is 0 where nobody has said.
func (s *subject) open(name, path string, layers int) error {
	p, err := mlpackage.Read(path, mlpackage.ReadOptions{NoVerify: true})
	if err != nil {
		return err
	}
	if layers == 0 {
		layers = layersOf(p.Metadata.UserDefined["smelt.layers"])
	}
	s.pkgs = append(s.pkgs, p)
	s.chunks = append(s.chunks, newChunk(name, layers, p))
	return nil
}

// layersOf reads "8-16", what a conversion notes in a package.
func layersOf(s string) int {
	from, to, ok := strings.Cut(s, "-")
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if !ok || err1 != nil || err2 != nil {
		return 0
	}
	return max(b-a, 0)
}

func (s *subject) close() error {
	var errs []error
	for _, p := range s.pkgs {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// report scans the constants, applies all rules and closes the packages.
func (s *subject) report() (*Report, error) {
	r := &Report{Path: s.path, Findings: []Finding{}}
	for _, c := range s.chunks {
		if err := c.scan(); err != nil {
			return nil, errors.Join(fmt.Errorf("lint: %s: %w", c.name, err), s.close())
		}
	}
	for _, c := range s.chunks {
		r.Chunks = append(r.Chunks, count(c))
	}
	r.Findings = merge(s.apply(Rules()))
	return r, s.close()
}
