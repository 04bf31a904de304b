package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
)

type nodeKind uint8

const (
	nullNode nodeKind = iota
	boolNode
	numberNode
	stringNode
	arrayNode
	objectNode
)

func (k nodeKind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// node is one JSON value of a component description, with the path that
// leads to it ("pre_tokenizer.pretokenizers[0]") so that every complaint says
// where it belongs.
type node struct {
	kind   nodeKind
	path   string
	text   string // string contents or the number's text
	truth  bool
	items  []node
	fields []field
}

type field struct {
	key   string
	value node
}

// node reads one value as a tree.
func (s *scanner) node(path string, depth int) (node, error) {
	n := node{path: path}
	if depth > maxDepth {
		return n, s.errorf("nested deeper than %d", maxDepth)
	}
	var err error
	switch c := s.peek(); {
	case c == '{':
		n.kind = objectNode
		seen := map[string]bool{}
		err = s.object(func(key []byte) error {
			k := string(key)
			if seen[k] {
				return s.errorf("%s: duplicate key %q", path, k)
			}
			seen[k] = true
			v, err := s.node(path+"."+k, depth+1)
			n.fields = append(n.fields, field{k, v})
			return err
		})
	case c == '[':
		n.kind = arrayNode
		err = s.array(func() error {
			v, err := s.node(path+"["+strconv.Itoa(len(n.items))+"]", depth+1)
			n.items = append(n.items, v)
			return err
		})
	case c == '"':
		n.kind = stringNode
		var b []byte
		b, err = s.string()
		n.text = string(b)
	case c == '-' || c >= '0' && c <= '9':
		n.kind = numberNode
		n.text, err = s.number()
	default:
		var word string
		word, err = s.literal()
		if word != "null" {
			n.kind, n.truth = boolNode, word == "true"
		}
	}
	return n, err
}

func (n node) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %s", n.path, fmt.Sprintf(format, args...))
}

func (n node) want(kind nodeKind) error {
	if n.kind != kind {
		return n.errorf("is %s, must be %s", n.kind, kind)
	}
	return nil
}

// component reads the object n as a component that has exactly the named
// fields; a name that ends in "?" may be absent. Unknown fields are errors:
// a field this package does not know could change the ids.
func (n node) component(names ...string) (map[string]node, error) {
	if err := n.want(objectNode); err != nil {
		return nil, err
	}
	out := make(map[string]node, len(n.fields))
	for _, f := range n.fields {
		out[f.key] = f.value
	}
	known := map[string]bool{"type": true}
	for _, name := range names {
		base, optional := strings.CutSuffix(name, "?")
		known[base] = true
		if _, ok := out[base]; !ok && !optional {
			return nil, n.errorf("%s has no field %q", n.typeName(), base)
		}
	}
	for _, f := range n.fields {
		if !known[f.key] {
			return nil, n.errorf("%s has an unknown field %q", n.typeName(), f.key)
		}
	}
	return out, nil
}

// typeName is the component's "type", "" when it has none.
func (n node) typeName() string {
	for _, f := range n.fields {
		if f.key == "type" && f.value.kind == stringNode {
			return f.value.text
		}
	}
	return ""
}

// find returns the first object in n, itself included, that match takes.
func (n node) find(match func(node) bool) *node {
	if n.kind == objectNode && match(n) {
		return &n
	}
	for _, item := range n.items {
		if found := item.find(match); found != nil {
			return found
		}
	}
	for _, f := range n.fields {
		if found := f.value.find(match); found != nil {
			return found
		}
	}
	return nil
}

func (n node) boolean() (bool, error) { return n.truth, n.want(boolNode) }

func (n node) str() (string, error) { return n.text, n.want(stringNode) }

func (n node) array() ([]node, error) { return n.items, n.want(arrayNode) }

// count reads a non-negative integer.
func (n node) count() (int, error) {
	if err := n.want(numberNode); err != nil {
		return 0, err
	}
	v, err := strconv.ParseInt(n.text, 10, 32)
	if err != nil || v < 0 {
		return 0, n.errorf("%s is not a non-negative integer below 2^31", n.text)
	}
	return int(v), nil
}

// char reads a string of exactly one code point.
func (n node) char() (rune, error) {
	if err := n.want(stringNode); err != nil {
		return 0, err
	}
	r := []rune(n.text)
	if len(r) != 1 {
		return 0, n.errorf("%q must be one character", n.text)
	}
	return r[0], nil
}

// pattern reads a pattern object {"String": s} or {"Regex": s}.
func (n node) pattern() (text string, regex bool, err error) {
	if err := n.want(objectNode); err != nil {
		return "", false, err
	}
	if len(n.fields) != 1 || n.fields[0].key != "String" && n.fields[0].key != "Regex" {
		return "", false, n.errorf(`must hold exactly one of "String" and "Regex"`)
	}
	f := n.fields[0]
	text, err = f.value.str()
	if err == nil && text == "" {
		err = f.value.errorf("an empty pattern is not supported")
	}
	return text, f.key == "Regex", err
}
