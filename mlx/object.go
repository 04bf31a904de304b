package mlx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// object is a JSON object that keeps the order of its keys and the spelling of
// its numbers. Values are *object, []any, string, json.Number, bool or nil.
type object struct {
	keys   []string
	values map[string]any
}

func newObject() *object { return &object{values: map[string]any{}} }

func (o *object) get(key string) (any, bool) {
	v, ok := o.values[key]
	return v, ok
}

func (o *object) set(key string, v any) {
	if _, ok := o.values[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.values[key] = v
}

func (o *object) remove(key string) {
	if _, ok := o.values[key]; ok {
		delete(o.values, key)
		o.keys = slices.DeleteFunc(o.keys, func(k string) bool { return k == key })
	}
}

// child is the object under key, or nil.
func (o *object) child(key string) *object {
	c, _ := o.values[key].(*object)
	return c
}

func (o *object) str(key string) string {
	s, _ := o.values[key].(string)
	return s
}

func (o *object) integer(key string) (int, bool) {
	n, ok := o.values[key].(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(n.String())
	return i, err == nil
}

// parseObject reads one JSON object.
func parseObject(data []byte) (*object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("text after the JSON value")
	}
	o, ok := v.(*object)
	if !ok {
		return nil, fmt.Errorf("want a JSON object")
	}
	return o, nil
}

func parseValue(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		o := newObject()
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			key := k.(string)
			if _, ok := o.values[key]; ok {
				return nil, fmt.Errorf("key %q appears twice", key)
			}
			v, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			o.set(key, v)
		}
		_, err = d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	return t, nil
}

// sorted is o with its own keys sorted; those of its values keep their order.
func (o *object) sorted() *object {
	s := &object{keys: slices.Sorted(slices.Values(o.keys)), values: o.values}
	return s
}

// render prints JSON as Python's json.dump with indent=4 does.
func render(v any) []byte {
	var b strings.Builder
	write(&b, v, "\n")
	return []byte(b.String())
}

func write(b *strings.Builder, v any, line string) {
	inner := line + "    "
	switch v := v.(type) {
	case *object:
		if len(v.keys) == 0 {
			b.WriteString("{}")
			return
		}
		for i, k := range v.keys {
			b.WriteString([]string{"{", ","}[min(i, 1)])
			b.WriteString(inner)
			quote(b, k)
			b.WriteString(": ")
			write(b, v.values[k], inner)
		}
		b.WriteString(line + "}")
	case []any:
		if len(v) == 0 {
			b.WriteString("[]")
			return
		}
		for i, x := range v {
			b.WriteString([]string{"[", ","}[min(i, 1)])
			b.WriteString(inner)
			write(b, x, inner)
		}
		b.WriteString(line + "]")
	case string:
		quote(b, v)
	case nil:
		b.WriteString("null")
	default:
		fmt.Fprint(b, v)
	}
}

// quote prints a string in ASCII.
func quote(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r >= 0x20 && r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
}
