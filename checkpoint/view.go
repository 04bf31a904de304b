package checkpoint

import (
	"maps"
	"slices"
	"strings"
)

// Waived is a tensor a [View] leaves out on purpose.
type Waived struct {
	Name   string // as in the checkpoint
	Reason string // such as "vision encoder"
	Bytes  int64
}

// View presents the language model of a checkpoint under the names a text-only
// checkpoint uses: model.embed_tokens.weight, model.layers.0.…,
// model.norm.weight, lm_head.weight. Tensors keep their order and data;
// Name returns the presented name.
type View struct {
	tensors  map[string]Tensor
	original map[string]string
	names    []string
	waived   []Waived
	prefix   string
}

// textPrefixes are the places multimodal checkpoints keep their language model
// in, most specific first, and what each stands for.
var textPrefixes = []struct{ from, to string }{
	{"language_model.model.", "model."},
	{"language_model.lm_head.", "lm_head."},
	{"language_model.", "model."},
	{"model.language_model.", "model."},
	{"model.text_model.", "model."},
}

// otherParts are the parts of multimodal models that are not the language
// model; they occur at the top or under "model.".
var otherParts = []struct{ prefix, reason string }{
	{"vision_tower.", "vision encoder"},
	{"vision_model.", "vision encoder"},
	{"vision_encoder.", "vision encoder"},
	{"visual.", "vision encoder"},
	{"embed_vision.", "vision projector"},
	{"audio_tower.", "audio encoder"},
	{"audio_model.", "audio encoder"},
	{"audio_encoder.", "audio encoder"},
	{"embed_audio.", "audio projector"},
	{"multi_modal_projector.", "multimodal projector"},
	{"mm_projector.", "multimodal projector"},
	{"connector.", "multimodal projector"},
	{"image_newline", "image separator embedding"},
}

// Text returns the language model of c. Tensors of vision and audio parts are
// left out and listed by [View.Waived]; anything else that is not recognised
// stays visible under its own name, so that whoever accounts for the tensors
// can call it an error. The same holds for a tensor whose presented name is
// taken by another one.
func (c *Checkpoint) Text() *View { return TextView(c) }

// TextView is [Checkpoint.Text] for any source.
func TextView(src Source) *View {
	v := &View{tensors: make(map[string]Tensor), original: make(map[string]string)}
	names := src.Names()
	taken := make(map[string]bool, len(names))
	for _, name := range names {
		taken[name] = true
	}
	for _, name := range names {
		t, ok := src.Tensor(name)
		if !ok {
			continue
		}
		if reason, ok := otherPart(name); ok {
			v.waived = append(v.waived, Waived{name, reason, NumBytes(t)})
			continue
		}
		shown, prefix := canonical(name)
		if shown != name && (taken[shown] || v.tensors[shown] != nil) {
			shown, prefix = name, ""
		}
		if prefix != "" && v.prefix == "" {
			v.prefix = prefix
		}
		v.tensors[shown] = Rename(t, shown)
		v.original[shown] = name
	}
	v.names = slices.Sorted(maps.Keys(v.tensors))
	return v
}

// canonical returns the text-only name of a tensor and the prefix that stood
// before it.
func canonical(name string) (shown, prefix string) {
	for _, p := range textPrefixes {
		if rest, ok := strings.CutPrefix(name, p.from); ok {
			return p.to + rest, p.from
		}
	}
	return name, ""
}

func otherPart(name string) (reason string, ok bool) {
	name = strings.TrimPrefix(name, "model.")
	for _, p := range otherParts {
		if strings.HasPrefix(name, p.prefix) {
			return p.reason, true
		}
	}
	return "", false
}

// Names returns the presented names, sorted.
func (v *View) Names() []string { return slices.Clone(v.names) }

// Tensor returns a tensor by its presented name.
func (v *View) Tensor(name string) (Tensor, bool) {
	t, ok := v.tensors[name]
	return t, ok
}

// Original returns the name a presented tensor has in the checkpoint.
func (v *View) Original(name string) (string, bool) {
	o, ok := v.original[name]
	return o, ok
}

// Waived returns the tensors left out, sorted by name.
func (v *View) Waived() []Waived { return slices.Clone(v.waived) }

// Multimodal reports whether the checkpoint holds more than a plain text model:
// its text part had a prefix, or some tensors were waived.
func (v *View) Multimodal() bool { return v.prefix != "" || len(v.waived) > 0 }
