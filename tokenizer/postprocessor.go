package tokenizer

import "fmt"

// template is the post-processor: it puts special tokens around the ids of a
// text. Only the single-sequence form is used, there being no pairs here.
type template []templatePart

// templatePart is either the text's ids or some special ids.
type templatePart struct {
	sequence bool
	special  []int32
}

// apply returns the ids with the template around them; without special, only
// with the sequences in place.
func (t template) apply(ids []int32, special bool) []int32 {
	if t == nil {
		return ids
	}
	var out []int32
	for _, part := range t {
		switch {
		case part.sequence:
			out = append(out, ids...)
		case special:
			out = append(out, part.special...)
		}
	}
	return out
}

// buildPostProcessor reads a post_processor description. exists says whether
// an id is a token. nil means that nothing is added.
func buildPostProcessor(n node, exists func(int32) bool) (template, error) {
	if n.kind == nullNode {
		return nil, nil
	}
	if err := n.want(objectNode); err != nil {
		return nil, err
	}
	switch kind := n.typeName(); kind {
	case "ByteLevel":
		// It moves offsets; ids stay as they are.
		_, _, err := byteLevelFields(n)
		return nil, err
	case "TemplateProcessing":
		return buildTemplate(n, exists)
	case "Sequence":
		f, err := n.component("processors")
		if err != nil {
			return nil, err
		}
		parts, err := f["processors"].array()
		if err != nil {
			return nil, err
		}
		var out template
		for _, part := range parts {
			t, err := buildPostProcessor(part, exists)
			if err != nil {
				return nil, err
			}
			if t != nil && out != nil {
				return nil, part.errorf("a second TemplateProcessing in one Sequence is not supported")
			}
			if t != nil {
				out = t
			}
		}
		return out, nil
	default:
		return nil, n.errorf("post-processor %q is not supported", kind)
	}
}

func buildTemplate(n node, exists func(int32) bool) (template, error) {
	f, err := n.component("single", "pair", "special_tokens")
	if err != nil {
		return nil, err
	}
	specials, err := readSpecials(f["special_tokens"], exists)
	if err != nil {
		return nil, err
	}
	// The pair form is checked, though nothing uses it.
	if _, err := readPieces(f["pair"], specials, true); err != nil {
		return nil, err
	}
	return readPieces(f["single"], specials, false)
}

// readSpecials reads the special tokens a template may name.
func readSpecials(n node, exists func(int32) bool) (map[string][]int32, error) {
	if err := n.want(objectNode); err != nil {
		return nil, err
	}
	out := map[string][]int32{}
	for _, entry := range n.fields {
		f, err := entry.value.component("id", "ids", "tokens")
		if err != nil {
			return nil, err
		}
		items, err := f["ids"].array()
		if err != nil {
			return nil, err
		}
		tokens, err := f["tokens"].array()
		if err != nil {
			return nil, err
		}
		if len(tokens) != len(items) {
			return nil, entry.value.errorf("has %d ids for %d tokens", len(items), len(tokens))
		}
		ids := make([]int32, 0, len(items))
		for _, item := range items {
			id, err := item.count()
			if err != nil {
				return nil, err
			}
			if !exists(int32(id)) {
				return nil, item.errorf("id %d is no token of this vocabulary", id)
			}
			ids = append(ids, int32(id))
		}
		out[entry.key] = ids
	}
	return out, nil
}

func readPieces(n node, specials map[string][]int32, pair bool) (template, error) {
	items, err := n.array()
	if err != nil {
		return nil, err
	}
	out := template{}
	for _, item := range items {
		if err := item.want(objectNode); err != nil {
			return nil, err
		}
		if len(item.fields) != 1 {
			return nil, item.errorf("must hold exactly one of SpecialToken and Sequence")
		}
		kind, body := item.fields[0].key, item.fields[0].value
		f, err := body.component("id", "type_id")
		if err != nil {
			return nil, err
		}
		id, err := f["id"].str()
		if err != nil {
			return nil, err
		}
		switch {
		case kind == "SpecialToken":
			ids, ok := specials[id]
			if !ok {
				return nil, body.errorf("special token %q is not among special_tokens", id)
			}
			out = append(out, templatePart{special: ids})
		case kind == "Sequence" && (id == "A" || pair && id == "B"):
			out = append(out, templatePart{sequence: true})
		default:
			return nil, item.errorf("%s", fmt.Sprintf("%s %q is not supported here", kind, id))
		}
	}
	return out, nil
}
