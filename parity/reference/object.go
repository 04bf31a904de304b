package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// object reads one JSON object key by key. It remembers which keys were asked
// for, so that what is left over can be refused, and keeps the first error.
// A key whose value is null counts as absent: that is how transformers writes
// "not set".
type object struct {
	at     string // where the object stands, for messages: "config.json" or "config.json: rope_scaling"
	fields map[string]json.RawMessage
	taken  map[string]bool
	err    error
}

func parseObject(at string, data []byte) (*object, error) {
	o := &object{at: at, taken: map[string]bool{}}
	if err := json.Unmarshal(data, &o.fields); err != nil {
		return nil, fmt.Errorf("reference: %s: not a JSON object: %w", at, err)
	}
	if o.fields == nil {
		return nil, fmt.Errorf("reference: %s: not a JSON object: null", at)
	}
	return o, nil
}

func (o *object) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("reference: %s: %s", o.at, fmt.Sprintf(format, args...))
	}
}

// has reports whether key is present with a value other than null.
func (o *object) has(key string) bool {
	raw, ok := o.fields[key]
	return ok && string(bytes.TrimSpace(raw)) != "null"
}

func (o *object) decode(key string, into any, want string) bool {
	o.taken[key] = true
	if !o.has(key) {
		return false
	}
	if err := json.Unmarshal(o.fields[key], into); err != nil {
		o.fail("%s: want %s, got %s", key, want, abridge(o.fields[key]))
		return false
	}
	return true
}

func (o *object) missing(key string) {
	o.fail("%s: key is missing (the model cannot be computed without it)", key)
}

func (o *object) size(key string) int {
	if !o.has(key) {
		o.taken[key] = true
		o.missing(key)
		return 0
	}
	return o.sizeOr(key, 0)
}

// sizeOr reads a positive integer.
func (o *object) sizeOr(key string, otherwise int) int {
	var n int
	if !o.decode(key, &n, "a positive integer") {
		return otherwise
	}
	if n <= 0 || n > math.MaxInt32 {
		o.fail("%s: want a positive integer, got %d", key, n)
	}
	return n
}

// count reads an integer ≥ 0.
func (o *object) count(key string) int {
	n := 0
	if !o.decode(key, &n, "an integer") {
		o.missing(key)
		return 0
	}
	if n < 0 || n > math.MaxInt32 {
		o.fail("%s: want an integer ≥ 0, got %d", key, n)
		return 0
	}
	return n
}

func (o *object) number(key string) float64 {
	if !o.has(key) {
		o.taken[key] = true
		o.missing(key)
		return 0
	}
	return o.numberOr(key, 0)
}

// numberOr reads a positive finite number.
func (o *object) numberOr(key string, otherwise float64) float64 {
	var x float64
	if !o.decode(key, &x, "a positive number") {
		return otherwise
	}
	if !(x > 0) || math.IsInf(x, 0) {
		o.fail("%s: want a positive number, got %v", key, x)
	}
	return x
}

func (o *object) flagOr(key string, otherwise bool) bool {
	var b bool
	if !o.decode(key, &b, "true or false") {
		return otherwise
	}
	return b
}

func (o *object) textOr(key, otherwise string) string {
	var s string
	if !o.decode(key, &s, "a string") {
		return otherwise
	}
	return s
}

func (o *object) text(key string) string {
	if !o.has(key) {
		o.taken[key] = true
		o.missing(key)
		return ""
	}
	return o.textOr(key, "")
}

func (o *object) texts(key string) []string {
	var list []string
	o.decode(key, &list, "a list of strings")
	return list
}

// object reads a nested object; nil when the key is absent.
func (o *object) object(key string) *object {
	o.taken[key] = true
	if !o.has(key) {
		return nil
	}
	sub, err := parseObject(o.at+": "+key, o.fields[key])
	if err != nil {
		if o.err == nil {
			o.err = err
		}
		return nil
	}
	return sub
}

// adopt takes over the error of a nested object.
func (o *object) adopt(sub *object) {
	if o.err == nil {
		o.err = sub.err
	}
}

// refuseRest reports the first key, in alphabetical order, that nobody asked
// for and that is not known to leave the maths alone. A value of null or false
// switches nothing on and passes.
func (o *object) refuseRest(neutral func(key string) bool) {
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if o.taken[key] || neutral(key) || !o.has(key) || string(bytes.TrimSpace(o.fields[key])) == "false" {
			continue
		}
		o.fail("%s: unknown key with value %s (it could change the computation; remove it if it does not)", key, abridge(o.fields[key]))
		return
	}
}

func abridge(raw json.RawMessage) string {
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return "malformed JSON"
	}
	s := out.String()
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:57], "") + "..."
	}
	return s
}
