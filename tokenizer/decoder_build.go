package tokenizer

import "strings"

// decoderPart is one decoder of the file, sequences unfolded.
type decoderPart struct {
	kind string
	step func() decodeStep
	// Strip's settings, kept for joining it with a Fuse before it.
	char        rune
	start, stop int
}

// buildDecoder reads a decoder description.
func buildDecoder(n node) (decoder, error) {
	if n.kind == nullNode {
		return decoder{steps: []func() decodeStep{func() decodeStep { return &spacedStep{} }}}, nil
	}
	parts, err := readDecoder(nil, n)
	if err != nil {
		return decoder{}, err
	}
	var d decoder
	for i := 0; i < len(parts); i++ {
		p := parts[i]
		last := i+1 == len(parts)
		switch {
		case p.kind == "Fuse" && last:
			// Text is joined at the end anyway.
		case p.kind == "Fuse" && parts[i+1].kind == "Strip" && (i+2 == len(parts) || parts[i+2].kind == "Fuse"):
			s := parts[i+1]
			d.steps = append(d.steps, func() decodeStep {
				return &fusedStripStep{char: string(s.char), start: s.start, stop: s.stop}
			})
			i++
		case p.kind == "ByteLevel" && !last:
			// Its result is one token; hold it together for what follows.
			d.steps = append(d.steps, p.step, func() decodeStep { return &fuseStep{} })
		default:
			d.steps = append(d.steps, p.step)
		}
	}
	return d, nil
}

func readDecoder(out []decoderPart, n node) ([]decoderPart, error) {
	if err := n.want(objectNode); err != nil {
		return nil, err
	}
	part := decoderPart{kind: n.typeName()}
	switch part.kind {
	case "Sequence":
		f, err := n.component("decoders")
		if err != nil {
			return nil, err
		}
		items, err := f["decoders"].array()
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			if out, err = readDecoder(out, item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case "ByteLevel":
		if _, _, err := byteLevelFields(n); err != nil {
			return nil, err
		}
		part.step = func() decodeStep { return &byteLevelStep{} }
	case "ByteFallback":
		if _, err := n.component(); err != nil {
			return nil, err
		}
		part.step = func() decodeStep { return &byteFallbackStep{} }
	case "Fuse":
		if _, err := n.component(); err != nil {
			return nil, err
		}
		part.step = func() decodeStep { return &fuseStep{} }
	case "Replace":
		literal, with, err := replaceFields(n)
		if err != nil {
			return nil, err
		}
		part.step = func() decodeStep {
			return mapStep(func(token string) string { return strings.ReplaceAll(token, literal, with) })
		}
	case "Strip":
		f, err := n.component("content", "start", "stop")
		if err != nil {
			return nil, err
		}
		if part.char, err = f["content"].char(); err != nil {
			return nil, err
		}
		if part.start, err = f["start"].count(); err != nil {
			return nil, err
		}
		if part.stop, err = f["stop"].count(); err != nil {
			return nil, err
		}
		part.step = func() decodeStep {
			return mapStep(func(token string) string { return strip(token, part.char, part.start, part.stop) })
		}
	case "Metaspace":
		m, err := metaspaceFields(n)
		if err != nil {
			return nil, err
		}
		part.step = func() decodeStep {
			return &metaspaceStep{mark: string(m.mark), drop: m.prepend != "never"}
		}
	case "BPEDecoder":
		f, err := n.component("suffix")
		if err != nil {
			return nil, err
		}
		suffix, err := f["suffix"].str()
		if err != nil {
			return nil, err
		}
		if suffix == "" {
			return nil, f["suffix"].errorf("an empty suffix is not supported")
		}
		part.step = func() decodeStep { return &suffixStep{suffix: suffix} }
	default:
		return nil, n.errorf("decoder %q is not supported", part.kind)
	}
	return append(out, part), nil
}
