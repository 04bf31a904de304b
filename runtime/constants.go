package runtime

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/smelt-go/smelt/internal/decompress"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// constCache holds the decoded constants of a program. Two consts that are
// the same bytes of one file share a tensor, whichever functions they are in.
type constCache struct {
	mu      sync.Mutex
	tensors map[string]*Tensor
	// pinned keeps the consts alive: their addresses are the keys, and those
	// of defaults, which nothing else holds, must not be used again.
	pinned map[string]mil.Const
	// decoders read constants and constexprs in parts.
	decoders map[string]*decompress.Tensor
	// matrices are decoders as products read them; nil for none.
	matrices map[*decompress.Tensor]*kernel.Packed
}

func newConstCache() *constCache {
	return &constCache{tensors: map[string]*Tensor{}, pinned: map[string]mil.Const{}, decoders: map[string]*decompress.Tensor{}, matrices: map[*decompress.Tensor]*kernel.Packed{}}
}

// constKey identifies a constant: by the place of its bytes where these are
// in memory, else by the Const itself.
func constKey(c mil.Const) string {
	if r, ok := c.(mil.RawConst); ok {
		if b := r.Raw(); len(b) > 0 {
			return fmt.Sprintf("%p+%d:%v", unsafe.SliceData(b), len(b), c.Type())
		}
	}
	return fmt.Sprintf("%p:%v", c, c.Type())
}

// decode returns the tensor of c.
func (cc *constCache) decode(c mil.Const) (*Tensor, error) {
	key := constKey(c)
	cc.mu.Lock()
	cc.pinned[key] = c
	cc.mu.Unlock()
	return cc.get(key, func() (*Tensor, error) { return FromConst(c) })
}

// get returns the cached tensor of key or makes it. The lock is not held
// while it is made, since making one may need others.
func (cc *constCache) get(key string, load func() (*Tensor, error)) (*Tensor, error) {
	cc.mu.Lock()
	t, ok := cc.tensors[key]
	cc.mu.Unlock()
	if ok {
		return t, nil
	}
	t, err := load()
	if err != nil {
		return nil, err
	}
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if old, ok := cc.tensors[key]; ok {
		return old, nil
	}
	cc.tensors[key] = t
	return t, nil
}

func isConstexpr(op *mil.Op) bool { return strings.HasPrefix(op.Kind, "constexpr_") }

// constexprKey identifies output i of a constexpr by its kind and operands.
func constexprKey(op *mil.Op, i int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s#%d(", op.Kind, i)
	for _, a := range op.Args {
		b.WriteString(a.Param)
		for _, v := range a.Values {
			b.WriteByte(' ')
			switch {
			case v.Const != nil:
				b.WriteString(constKey(v.Const))
			case v.Op != nil:
				b.WriteString(constexprKey(v.Op, outputIndex(v)))
			}
		}
		b.WriteByte(';')
	}
	b.WriteByte(')')
	return b.String()
}

func outputIndex(v *mil.Value) int {
	for i, o := range v.Op.Outputs {
		if o == v {
			return i
		}
	}
	return -1
}

// constexpr evaluates a constexpr at load: once per program, whatever the
// number of functions that use it.
func (l *lowering) constexpr(v *mil.Value) (*Tensor, error) {
	op, i := v.Op, outputIndex(v)
	return l.prog.consts.get(constexprKey(op, i), func() (*Tensor, error) {
		low, ok := l.prog.table[op.Kind]
		if !ok {
			return nil, fmt.Errorf("op %q (%s): the operator is not executable here", op.Name, op.Kind)
		}
		sub := &lowering{
			prog: l.prog, fn: l.fn, code: &code{consts: map[int]*Tensor{}},
			slots: map[*mil.Value]int{}, cslot: map[*Tensor]int{},
		}
		in, err := low(sub, op)
		if err != nil {
			return nil, fmt.Errorf("op %q (%s): %w", op.Name, op.Kind, err)
		}
		f := newFrame(sub.code, l.prog, nil)
		if in.run != nil {
			in.op = op
			f.cur = &in
			if err := in.run(f); err != nil {
				return nil, fmt.Errorf("op %q (%s): %w", op.Name, op.Kind, err)
			}
		}
		s, ok := sub.slots[v]
		if !ok || f.t[s] == nil {
			return nil, fmt.Errorf("op %q (%s): has no value at load", op.Name, op.Kind)
		}
		t := *f.t[s]
		t.Shape = append([]int(nil), t.Shape...)
		if l.typed() {
			roundTo(&t)
		}
		return &t, nil
	})
}

// setConst makes t the value of output i of op, for lowerers that evaluate
// at load.
func (l *lowering) setConst(op *mil.Op, i int, t *Tensor) int {
	s := l.tensorSlot(t)
	l.slots[op.Outputs[i]] = s
	return s
}
