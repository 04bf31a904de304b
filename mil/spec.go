package mil

// An OpSpec describes one operator: the builder, the verifier, the printer,
// the documentation and the interpreter's coverage all read it.
type OpSpec struct {
	Kind   string
	Since  Opset // first opset that has the op
	Params []Param
	// Infer returns the types of the outputs. Inputs have been checked
	// against Params when it runs.
	Infer func(*Infer) ([]Type, error)
	// Doc is one line: what the op computes.
	Doc string
	// NumBlocks is the number of nested blocks (control flow).
	NumBlocks int
	// OutputsOptional marks ops that a file may write without outputs
	// (write_state).
	NoOutputs bool
}

// Param is one input of an operator.
type Param struct {
	Name string
	// Domain is the set of element types the parameter takes. Wide, if not
	// zero, replaces it from opset WideSince on.
	Domain    Domain
	Wide      Domain
	WideSince Opset
	// Const demands a value known at compile time (const or constexpr).
	Const bool
	// Optional parameters may be unbound; Default says what is then meant.
	Optional bool
	// Default is a Go value (bool, int, []int, float64, string), a
	// func(*Infer) any computing one, or nil if absence itself means
	// something. Floating point defaults take the type of the parameter's
	// Bind group, else of x.
	Default  any
	Variadic bool
	Since    Opset // first opset that knows the parameter
	// Bind names a group of parameters that must share one element type.
	// From opset FreeSince on (if not zero) the parameter leaves the group;
	// parameters that have left it still share a type among themselves
	// (layer_norm's gamma, beta and epsilon).
	Bind      string
	FreeSince Opset
	// State parameters take a StateType.
	State bool
}

// DomainAt returns the parameter's element types in the given opset.
func (p *Param) DomainAt(o Opset) Domain {
	if p.Wide != 0 && o >= p.WideSince {
		return p.Wide
	}
	return p.Domain
}

// Group names the group of parameters that p shares an element type with in
// the given opset; "" is none.
func (p *Param) Group(o Opset) string {
	if p.Bind != "" && p.FreeSince != 0 && o >= p.FreeSince {
		return p.Bind + "'"
	}
	return p.Bind
}

// Alone reports whether p shares its element type with no other parameter
// that op binds.
func (s *OpSpec) Alone(op *Op, p *Param, o Opset) bool {
	g := p.Group(o)
	if g == "" {
		return true
	}
	for _, a := range op.Args {
		if q := s.Param(a.Param); q != nil && q.Name != p.Name && q.Group(o) == g && len(a.Values) > 0 {
			return false
		}
	}
	return true
}

// Param returns the parameter called name, or nil.
func (s *OpSpec) Param(name string) *Param {
	for i := range s.Params {
		if s.Params[i].Name == name {
			return &s.Params[i]
		}
	}
	return nil
}

// Common element type sets.
var (
	Floats    = Dom(Float16, Float32)
	Ints32    = Dom(Int32)
	Numbers   = Dom(Float16, Float32, Int32)
	SmallInts = Dom(Int8, UInt8, Int16, UInt16)
	// Movable is what data movement ops take from CoreML7 on.
	Movable  = Dom(Float16, Float32, Int32, Int8, UInt8, Int16, UInt16, Bool)
	Bools    = Dom(Bool)
	Strings  = Dom(String)
	Indices  = Dom(Int32, Int16, UInt16, Int8, UInt8)
	AnyDType = Domain(1<<numDTypes - 2)
)

var table = indexSpecs(
	elementwiseSpecs, activationSpecs, reductionSpecs, linearSpecs, normSpecs, convSpecs, quantizeSpecs, sortSpecs,
	movementSpecs, indexingSpecs, constexprSpecs, controlSpecs,
)

func indexSpecs(groups ...[]OpSpec) map[string]*OpSpec {
	m := map[string]*OpSpec{}
	for _, g := range groups {
		for i := range g {
			m[g[i].Kind] = &g[i]
		}
	}
	return m
}

// Spec looks an operator up in the op table.
func Spec(kind string) (*OpSpec, bool) {
	s, ok := table[kind]
	return s, ok
}
