package tokenizer

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
)

// Parse reads a tokenizer.json from memory. name stands for the file in
// error messages. data is not kept.
//
// Reading is strict: a component, a field or a pattern that this package
// does not know is an error that names it, never a default.
//
// The merges of a BPE model, by far the largest part of a file, are read but
// only the first of them looked up: Encode does the rest when it is first
// called, and returns what it finds wrong with them.
func Parse(name string, data []byte) (*Tokenizer, error) {
	return parseOwn(name, bytes.Clone(data))
}

// parseOwn is Parse for data that nobody will change.
func parseOwn(name string, data []byte) (*Tokenizer, error) {
	t, err := parse(name, data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", name, err)
	}
	return t, nil
}

// sections are the top-level fields of a tokenizer.json.
var sections = []string{
	"version", "truncation", "padding", "added_tokens", "normalizer",
	"pre_tokenizer", "post_processor", "decoder", "model",
}

func parse(name string, data []byte) (*Tokenizer, error) {
	s := &scanner{data: data}
	t := &Tokenizer{name: name}
	parts := map[string]node{}
	for _, section := range sections {
		parts[section] = node{path: section}
	}
	seen := map[string]bool{}
	err := s.object(func(key []byte) error {
		k := string(key)
		if _, known := parts[k]; !known {
			return s.errorf("unknown field %q (is this a tokenizer.json?)", k)
		}
		if seen[k] {
			return s.errorf("duplicate field %q", k)
		}
		seen[k] = true
		var err error
		if k == "model" {
			t.model, err = readModel(s)
		} else {
			parts[k], err = s.node(k, 0)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.peek(); s.pos < len(data) {
		return nil, s.errorf("data after the end of the tokenizer")
	}
	if t.model == nil {
		return nil, fmt.Errorf("no field %q (is this a tokenizer.json?)", "model")
	}
	t.vocab = t.model.vocab
	return t, t.build(parts)
}

// build makes the pipeline from the parts of the file.
func (t *Tokenizer) build(parts map[string]node) error {
	if v := parts["version"]; v.kind != nullNode && (v.kind != stringNode || v.text != "1.0") {
		return v.errorf("%q is not supported, only %q", v.text, "1.0")
	}
	var err error
	if t.truncation, err = readTruncation(parts["truncation"]); err != nil {
		return err
	}
	if t.padding, err = readPadding(parts["padding"]); err != nil {
		return err
	}
	if t.normalize, err = buildNormalizer(parts["normalizer"]); err != nil {
		return err
	}
	if t.pre, err = buildPreTokenizer(parts["pre_tokenizer"]); err != nil {
		return err
	}
	if err := checkFirst(parts["normalizer"], parts["pre_tokenizer"]); err != nil {
		return err
	}
	if t.decode, err = buildDecoder(parts["decoder"]); err != nil {
		return err
	}
	var added []addedToken
	if n := parts["added_tokens"]; n.kind != nullNode {
		if added, err = readAdded(n); err != nil {
			return err
		}
	}
	if err := t.addTokens(added); err != nil {
		return err
	}
	t.post, err = buildPostProcessor(parts["post_processor"], func(id int32) bool {
		_, ok := t.Token(id)
		return ok
	})
	return err
}

// checkFirst refuses a Metaspace that marks only the start of the text after a
// normalizer that can move that start: which of the normalized characters the
// reference takes for the first then hangs on its offset bookkeeping.
func checkFirst(normalizer, pre node) error {
	moves := normalizer.find(func(n node) bool {
		kind := n.typeName()
		return kind == "Strip" || kind == "Prepend" || kind == "Replace"
	})
	first := pre.find(func(n node) bool {
		for _, f := range n.fields {
			if f.key == "prepend_scheme" && f.value.text == "first" {
				return true
			}
		}
		return false
	})
	if moves != nil && first != nil {
		return first.errorf("Metaspace with prepend_scheme %q after the normalizer %s is not supported", "first", moves.typeName())
	}
	return nil
}

// readModel reads the model object. The merges need the vocabulary and the
// prefix; in a file that has these later, the merges are skipped at first and
// looked at in the end.
func readModel(s *scanner) (*bpe, error) {
	m := &bpe{}
	mergesAt, prefixKnown, skimmed := -1, false, false
	var fields []field
	seen := map[string]bool{}
	err := s.object(func(key []byte) error {
		k := string(key)
		if seen[k] {
			return s.errorf("model: duplicate field %q", k)
		}
		seen[k] = true
		var err error
		switch k {
		case "vocab":
			if s.peek() != '{' {
				return s.errorf("model.vocab is not an object: only BPE models are supported")
			}
			m.vocab, err = readVocab(s)
		case "merges":
			mergesAt = s.pos
			if m.vocab != nil && prefixKnown {
				err, skimmed = skimMerges(s, m.vocab, m.prefix), true
			} else {
				err = s.skip(0)
			}
		case "continuing_subword_prefix":
			prefixKnown = true
			var v node
			v, err = s.node("model."+k, 0)
			if m.prefix = v.text; err == nil && v.kind != nullNode {
				err = v.want(stringNode)
			}
		default:
			var v node
			v, err = s.node("model."+k, 0)
			fields = append(fields, field{k, v})
		}
		if err != nil && (k == "vocab" || k == "merges") {
			err = fmt.Errorf("model.%s: %w", k, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := m.settings(node{kind: objectNode, path: "model", fields: fields}); err != nil {
		return nil, err
	}
	if m.vocab == nil || mergesAt < 0 {
		return nil, fmt.Errorf("model: BPE needs both vocab and merges")
	}
	if !skimmed {
		if err := skimMerges(&scanner{data: s.data, pos: mergesAt}, m.vocab, m.prefix); err != nil {
			return nil, fmt.Errorf("model.merges: %w", err)
		}
	}
	m.merges = sync.OnceValues(func() (*mergeTable, error) {
		t, err := readMerges(&scanner{data: s.data, pos: mergesAt}, m.vocab, m.prefix)
		if err != nil {
			return nil, fmt.Errorf("model.merges: %w", err)
		}
		return t, nil
	})
	m.index()
	return m, nil
}

// settings reads the small fields of the model.
func (m *bpe) settings(n node) error {
	// GPT-2's own file has no type; merges tell that it is BPE.
	if kind := n.typeName(); kind != "BPE" && kind != "" {
		return n.errorf("model type %q is not supported, only BPE", kind)
	}
	f, err := n.component("dropout?", "unk_token?", "end_of_word_suffix?", "fuse_unk?",
		"byte_fallback?", "ignore_merges?")
	if err != nil {
		return err
	}
	if v, ok := f["type"]; ok && v.kind != stringNode {
		return v.want(stringNode)
	}
	if v := f["dropout"]; v.kind != nullNode {
		if err := v.want(numberNode); err != nil {
			return err
		}
		if strings.Trim(v.text, "0.") != "" {
			return v.errorf("is %s: with dropout, encoding would be random", v.text)
		}
	}
	for _, text := range []struct {
		name string
		to   *string
	}{{"unk_token", &m.unk}, {"end_of_word_suffix", &m.suffix}} {
		if v := f[text.name]; v.kind != nullNode {
			if *text.to, err = v.str(); err != nil {
				return err
			}
		}
	}
	m.hasUnk = f["unk_token"].kind != nullNode
	for _, flag := range []struct {
		name string
		to   *bool
	}{{"fuse_unk", &m.fuseUnk}, {"byte_fallback", &m.byteFallback}, {"ignore_merges", &m.ignoreMerges}} {
		if v := f[flag.name]; v.kind != nullNode {
			if *flag.to, err = v.boolean(); err != nil {
				return err
			}
		}
	}
	return nil
}

func readTruncation(n node) (*Truncation, error) {
	if n.kind == nullNode {
		return nil, nil
	}
	f, err := n.component("direction?", "max_length", "strategy", "stride")
	if err != nil {
		return nil, err
	}
	t := &Truncation{Direction: "Right"}
	if t.MaxLength, err = f["max_length"].count(); err != nil {
		return nil, err
	}
	if v, ok := f["direction"]; ok {
		if t.Direction, err = v.str(); err != nil {
			return nil, err
		}
		if t.Direction != "Left" && t.Direction != "Right" {
			return nil, v.errorf("unknown direction %q", t.Direction)
		}
	}
	return t, nil
}

func readPadding(n node) (*Padding, error) {
	if n.kind == nullNode {
		return nil, nil
	}
	f, err := n.component("strategy", "direction", "pad_to_multiple_of?", "pad_id", "pad_type_id", "pad_token")
	if err != nil {
		return nil, err
	}
	p := &Padding{}
	id, err := f["pad_id"].count()
	if err != nil {
		return nil, err
	}
	p.ID = int32(id)
	if p.Token, err = f["pad_token"].str(); err != nil {
		return nil, err
	}
	if s := f["strategy"]; s.kind == objectNode {
		fixed, err := s.component("Fixed")
		if err != nil {
			return nil, err
		}
		p.Length, err = fixed["Fixed"].count()
		return p, err
	} else if s.kind != stringNode || s.text != "BatchLongest" {
		return nil, s.errorf("unknown padding strategy")
	}
	return p, nil
}
