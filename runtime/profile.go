package runtime

import (
	"time"

	"github.com/smelt-go/smelt/mil"
)

// Profile adds up what the ops of runs cost. One Profile may serve many runs,
// one after the other.
type Profile struct {
	function string
	index    map[*instr]int
	ops      []OpCost
	runs     map[string]RunCost
}

// RunCost is what all profiled runs of a function took. Their time is more
// than that of their ops: it includes what lies between them.
type RunCost struct {
	Runs int
	Time time.Duration
}

// OpCost is the cost of one op, or of one pattern that runs as one. That of a
// cond or while_loop includes the ops of its blocks, which are also listed.
type OpCost struct {
	Function string
	// Name is that of the op in the program; a pattern has the name of the
	// op that it ends in.
	Name string
	// Kind is the op's kind; "attention", "rms_norm" and the like for
	// patterns.
	Kind  string
	Calls int
	Time  time.Duration
	// Bytes is what the calls have read and written, each tensor counted
	// once a call: weights as they are stored, values as float32 or int32.
	// Views count nothing.
	Bytes int64
}

// WithProfile adds the cost of every op of the run to p. Measuring an op
// takes about 0.1 µs.
func WithProfile(p *Profile) RunOption {
	return func(c *runConfig) { c.profile = p }
}

// Ops returns the costs so far, in the order in which ops first ran.
func (p *Profile) Ops() []OpCost { return append([]OpCost(nil), p.ops...) }

// Runs returns the cost of the runs of a function.
func (p *Profile) Runs(function string) RunCost { return p.runs[function] }

func (p *Profile) run(function string, body func() error) error {
	p.function = function
	start := time.Now()
	err := body()
	if p.runs == nil {
		p.runs = map[string]RunCost{}
	}
	c := p.runs[function]
	p.runs[function] = RunCost{c.Runs + 1, c.Time + time.Since(start)}
	return err
}

// timed runs one instruction and enters its cost.
func (p *Profile) timed(f *frame, in *instr) error {
	start := time.Now()
	err := f.step(in)
	d := time.Since(start)
	i, ok := p.index[in]
	if !ok {
		if p.index == nil {
			p.index = map[*instr]int{}
		}
		i = len(p.ops)
		p.index[in] = i
		kind := in.op.Kind
		if in.pattern != "" {
			kind = in.pattern
		}
		p.ops = append(p.ops, OpCost{Function: p.function, Name: in.op.Name, Kind: kind})
	}
	c := &p.ops[i]
	c.Calls++
	c.Time += d
	c.Bytes += in.traffic(f)
	return err
}

// traffic is what the instruction has just read and written, in bytes.
func (in *instr) traffic(f *frame) int64 {
	if in.moves != nil {
		return in.moves(f)
	}
	if in.op.Kind == "gather" && f.t[in.out[0]] != nil { // rows, not the table
		return 8 * int64(f.t[in.out[0]].Len())
	}
	bytes := in.weight
	written := false
	for _, s := range in.out {
		h := &f.own[s]
		if f.t[s] == &h.Tensor && h.buf != nil && h.buf.refs == 1 {
			bytes += 4 * int64(h.Len())
			written = true
		}
	}
	if !written && in.weight == 0 {
		return 0
	}
	for i, s := range in.reads {
		if f.t[s] != nil && !contains(in.reads[:i], s) {
			bytes += 4 * int64(f.t[s].Len())
		}
	}
	return bytes
}

// storedBytes is the size of constants as they are stored: of a constexpr,
// that of its operands.
func (l *lowering) storedBytes(values ...*mil.Value) int64 {
	var n int64
	for _, v := range values {
		switch {
		case v == nil:
		case v.Const != nil:
			n += v.Const.Type().NumBytes()
		case v.Op != nil && isConstexpr(v.Op):
			for _, a := range v.Op.Args {
				n += l.storedBytes(a.Values...)
			}
		}
	}
	return n
}
