package pass

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"

	"github.com/smelt-go/smelt/mil"
)

// Keyed is a constant that knows its identity: two constants with equal keys
// have equal contents, whatever object they are. Keys are comparable values.
// It spares reading a weight only to find that it is another one's twin.
type Keyed interface{ Key() any }

// keyOf is the constant's identity: its key, else the object itself.
func keyOf(c mil.Const) any {
	if k, ok := c.(Keyed); ok {
		return k.Key()
	}
	if !reflect.TypeOf(c).Comparable() {
		return new(byte) // an identity of its own
	}
	return c
}

// Equals finds equal constants: out[i] is the index of the first constant
// that has the type and contents of cs[i]. Use it to share weights between
// functions or between chunks. Contents are compared exactly and only as far
// as needed: a constant that is the only one of its type is never read, and
// one that differs from all others in its first bytes is not read further.
func Equals(cs []mil.Const) ([]int, error) {
	out := make([]int, len(cs))
	byKey := map[any]int{}
	var distinct []int // one index an identity
	for i, c := range cs {
		k := keyOf(c)
		if j, ok := byKey[k]; ok && cs[j].Type().Equal(c.Type()) {
			out[i] = j
			continue
		}
		byKey[k], out[i] = i, i
		distinct = append(distinct, i)
	}
	groups := [][]int{distinct}
	for _, key := range []func(mil.Const) (string, error){typeKey, headKey} {
		var err error
		if groups, err = refine(cs, groups, key); err != nil {
			return nil, err
		}
	}
	twin := map[int]int{}
	for _, g := range groups {
		if err := twins(cs, g, twin); err != nil {
			return nil, err
		}
	}
	for i, j := range out {
		if k, ok := twin[j]; ok {
			out[i] = k
		}
	}
	return out, nil
}

// refine splits groups of possibly equal constants by a key and drops those
// that are alone.
func refine(cs []mil.Const, groups [][]int, key func(mil.Const) (string, error)) ([][]int, error) {
	var out [][]int
	for _, g := range groups {
		parts := map[string][]int{}
		var order []string
		for _, i := range g {
			k, err := key(cs[i])
			if err != nil {
				return nil, err
			}
			if parts[k] == nil {
				order = append(order, k)
			}
			parts[k] = append(parts[k], i)
		}
		for _, k := range order {
			if len(parts[k]) > 1 {
				out = append(out, parts[k])
			}
		}
	}
	return out, nil
}

// headBytes is how much of a constant is compared before all of it is.
const headBytes = 4096

func typeKey(c mil.Const) (string, error) { return c.Type().String(), nil }

// headKey is the first headBytes of the contents.
func headKey(c mil.Const) (string, error) {
	if l, ok := c.(*mil.Literal); ok && l.T.DType == mil.String {
		return fmt.Sprintf("%q", l.Strs), nil
	}
	if read, ok := mil.Ranges(c); ok {
		b := make([]byte, min(c.Type().NumBytes(), headBytes))
		err := read(b, 0)
		return string(b), err
	}
	var h head
	if _, err := c.WriteTo(&h); err != nil && !h.full {
		return "", err
	}
	return string(h.b), nil
}

// head keeps the first bytes written to it and then stops the writer.
type head struct {
	b    []byte
	full bool
}

var errHeadFull = errors.New("enough")

func (h *head) Write(p []byte) (int, error) {
	if k := headBytes - len(h.b); len(p) > k {
		h.b, h.full = append(h.b, p[:k]...), true
		return k, errHeadFull
	}
	h.b = append(h.b, p...)
	return len(p), nil
}

// twins maps the members of a group whose heads are equal to the first one
// with the same contents.
func twins(cs []mil.Const, group []int, twin map[int]int) error {
	if t := cs[group[0]].Type(); t.DType == mil.String || t.NumBytes() <= headBytes {
		for _, i := range group[1:] { // headKey has seen all
			twin[i] = group[0]
		}
		return nil
	}
	var firsts []int
	sums := map[int][sha256.Size]byte{}
next:
	for _, i := range group {
		for _, j := range firsts {
			same, err := sameContents(cs, j, i, sums)
			if err != nil {
				return err
			}
			if same {
				twin[i] = j
				continue next
			}
		}
		firsts = append(firsts, i)
	}
	return nil
}

// sameContents compares piece by piece where both constants give pieces, else
// by hashes, which it keeps in sums.
func sameContents(cs []mil.Const, i, j int, sums map[int][sha256.Size]byte) (bool, error) {
	a, ok := mil.Ranges(cs[i])
	b, also := mil.Ranges(cs[j])
	if ok && also {
		return sameRanges(a, b, cs[i].Type().NumBytes())
	}
	for _, k := range []int{i, j} {
		if _, ok := sums[k]; ok {
			continue
		}
		h := sha256.New()
		if _, err := cs[k].WriteTo(h); err != nil {
			return false, err
		}
		sums[k] = [sha256.Size]byte(h.Sum(nil))
	}
	return sums[i] == sums[j], nil
}

// sameRanges compares size bytes, the last ones first: matrices that start
// alike seldom end alike.
func sameRanges(a, b mil.ReadRange, size int64) (bool, error) {
	p, q := piecePool.Get().(*[pieceBytes]byte), piecePool.Get().(*[pieceBytes]byte)
	defer piecePool.Put(p)
	defer piecePool.Put(q)
	for end := size; end > 0; {
		off := (end - 1) / pieceBytes * pieceBytes
		n := end - off
		end = off
		if err := errors.Join(a(p[:n], off), b(q[:n], off)); err != nil {
			return false, err
		}
		if !bytes.Equal(p[:n], q[:n]) {
			return false, nil
		}
	}
	return true, nil
}
