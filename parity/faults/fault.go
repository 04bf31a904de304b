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
	HostSide Family = "host"
	Artifact Family = "artifact"
	Drafter  Family = "drafter"
)

// Families lists them in the order of the catalog.
var Families = []Family{Graph, HostSide, Artifact, Drafter}

// Fault is one deliberate mistake.
type Fault struct {
	Name   string
	Family Family
	What   string // what goes wrong, one line
	// Cause says it without the place where it was injected; "" if What does.
	// It is what a report names when something fails in the same way.
	Cause string
	// Gates are the gates that may be the first to fail; any other one, or
	// none, means that the fault was not caught as it should be.
	Gates []string
	// Sites are the intermediates that the gate must name, without their
	// layer. Faults that nothing computes with have Says instead: what the
	// gate's reason must contain.
	Sites []string
	Says  string
	// Form names the kind of bundle that the fault is injected into; "" means
	// formTwo.
	Form string
	// Applies says whether the bundle has what the fault breaks; nil means
	// always.
	Applies func(*chunking.Contract) bool
	when    func(*bundle) bool // the same, where files decide

	// One of these.
	program  func(*bundle) error      // changes packages
	contract func(*chunking.Contract) // changes the contract
	files    func(*bundle) error      // changes other files, or what the gates are given
	config   func(c map[string]any)   // is misread by the converter
	host     func(*engine.Engine) parity.Host
}

// cause is what a report says.
func (f *Fault) cause() string {
	if f.Cause != "" {
		return f.Cause
	}
	return f.What
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
	case f.config != nil:
		return b.misread(f.config)
	}
	return nil
}

// Catalog lists all faults, family by family.
func Catalog() []Fault {
	var out []Fault
	for _, family := range [][]Fault{
		graphFaults(), gemma4Faults(), headFaults(),
		hostFaults(), maskFaults(), cacheFaults(),
		artifactFaults(), contractFaults(), misreadFaults(), codeFaults(), appFaults(),
		drafterFaults(),
	} {
		out = append(out, family...)
	}
	return out
}
