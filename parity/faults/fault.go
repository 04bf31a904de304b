package faults

import (
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/parity"
)

// Family says where a fault lives.
type Family string

// The families.
const (
	Graph    Family = "graph"
	Contract Family = "contract"
	HostSide Family = "host"
	Artifact Family = "artifact"
)

// Fault is one deliberate mistake.
type Fault struct {
	Name   string
	Family Family
	What   string // what goes wrong, one line
	// Gates are the gates that may be the first to fail; any other one, or
	// none, means that the fault was not caught as it should be.
	Gates []string
	// Sites are the intermediates that bisection must name, without their
	// layer; empty where there is nothing to bisect.
	Sites []string
	// Exact faults are smaller than the rounding of constants to fp16: they
	// are injected into a bundle that computes in fp32.
	Exact bool
	// Applies says whether the bundle has what the fault breaks; nil means
	// always.
	Applies func(*chunking.Contract) bool

	// One of these.
	program  func(*bundle) error // changes packages
	contract func(*chunking.Contract)
	files    func(*bundle) error
	host     func(*engine.Engine) parity.Host
}

// inject breaks the bundle.
func (f *Fault) inject(b *bundle) error {
	switch {
	case f.program != nil:
		return f.program(b)
	case f.contract != nil:
		f.contract(b.contract)
		return b.writeContract()
	case f.files != nil:
		return f.files(b)
	}
	return nil
}

// Catalog lists all faults.
func Catalog() []Fault {
	var out []Fault
	for _, family := range [][]Fault{graphFaults(), contractFaults(), hostFaults(), artifactFaults()} {
		out = append(out, family...)
	}
	return out
}
