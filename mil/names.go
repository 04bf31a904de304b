package mil

import (
	"strconv"
	"strings"
)

// reserved are the words of the MIL text grammar: Core ML's parser rejects a
// value or op that is called like one.
var reserved = map[string]bool{
	"any": true, "bool": true, "program": true, "func": true, "tensor": true,
	"list": true, "dict": true, "tuple": true, "true": true, "false": true,
	"string": true, "state": true,
	"bf16": true, "fp16": true, "fp32": true, "fp64": true,
	"int8": true, "int16": true, "int32": true, "int64": true,
	"uint8": true, "uint16": true, "uint32": true, "uint64": true,
}

// Reserved reports whether name is a word of the MIL grammar and so not
// usable as a name.
func Reserved(name string) bool { return reserved[name] }

// LegalName reports whether name matches [A-Za-z_][A-Za-z0-9_]* and is not a
// reserved word.
func LegalName(name string) bool {
	if name == "" || reserved[name] {
		return false
	}
	for i := range len(name) {
		if !nameByte(name[i], i == 0) {
			return false
		}
	}
	return true
}

func nameByte(c byte, first bool) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || !first && '0' <= c && c <= '9'
}

// SanitizeName turns any string into a legal name: other characters become
// underscores (layers.3.attn_out gives layers_3_attn_out), a leading digit
// gets one in front and a reserved word one behind. It is the identity on
// legal names.
func SanitizeName(name string) string {
	if LegalName(name) {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case nameByte(c, false):
			if i == 0 && !nameByte(c, true) {
				b.WriteByte('_')
			}
			b.WriteByte(c)
		default:
			b.WriteByte('_')
		}
	}
	if b.Len() == 0 || reserved[b.String()] {
		b.WriteByte('_')
	}
	return b.String()
}

// A Namer hands out names that are legal and unique within a function. The
// zero Namer is ready for use.
type Namer struct {
	used map[string]bool
	next map[string]int
}

// Reserve claims name and reports whether it was free.
func (n *Namer) Reserve(name string) bool {
	if n.used == nil {
		n.used, n.next = map[string]bool{}, map[string]int{}
	}
	if n.used[name] {
		return false
	}
	n.used[name] = true
	return true
}

// Release gives a name back.
func (n *Namer) Release(name string) { delete(n.used, name) }

// Unique claims a legal name as close to name as possible: the sanitized name
// itself, or that with the lowest suffix _1, _2, … not handed out yet.
func (n *Namer) Unique(name string) string {
	name = SanitizeName(name)
	if n.Reserve(name) {
		return name
	}
	for {
		n.next[name]++
		if s := name + "_" + strconv.Itoa(n.next[name]); n.Reserve(s) {
			return s
		}
	}
}
