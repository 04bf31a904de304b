package checkpoint

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestText(t *testing.T) {
	for _, tc := range []struct {
		name       string
		names      []string
		shown      map[string]string // presented → original
		waived     map[string]string // name → reason
		multimodal bool
	}{
		{
			name:  "text only",
			names: []string{"lm_head.weight", "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.norm.weight", "rotary.inv_freq"},
			shown: map[string]string{
				"lm_head.weight": "lm_head.weight", "model.embed_tokens.weight": "model.embed_tokens.weight", "rotary.inv_freq": "rotary.inv_freq",
				"model.layers.0.mlp.up_proj.weight": "model.layers.0.mlp.up_proj.weight", "model.norm.weight": "model.norm.weight",
			},
		},
		{
			name: "language_model outside",
			names: []string{
				"language_model.lm_head.weight", "language_model.model.embed_tokens.weight", "language_model.model.layers.0.mlp.up_proj.weight",
				"multi_modal_projector.mm_input_projection_weight", "vision_tower.vision_model.post_layernorm.bias", "something.weight",
			},
			shown: map[string]string{
				"lm_head.weight":                    "language_model.lm_head.weight",
				"model.embed_tokens.weight":         "language_model.model.embed_tokens.weight",
				"model.layers.0.mlp.up_proj.weight": "language_model.model.layers.0.mlp.up_proj.weight",
				"something.weight":                  "something.weight",
			},
			waived: map[string]string{
				"multi_modal_projector.mm_input_projection_weight": "multimodal projector",
				"vision_tower.vision_model.post_layernorm.bias":    "vision encoder",
			},
			multimodal: true,
		},
		{
			name:       "language_model without an inner model",
			names:      []string{"language_model.norm.weight"},
			shown:      map[string]string{"model.norm.weight": "language_model.norm.weight"},
			multimodal: true,
		},
		{
			name: "language_model inside",
			names: []string{
				"lm_head.weight", "model.language_model.layers.3.self_attn.q_proj.weight", "model.language_model.norm.weight",
				"model.vision_tower.x", "model.embed_vision.embedding_projection.weight", "model.audio_tower.y", "model.embed_audio.z",
				"model.multi_modal_projector.w", "model.visual_tokens.weight",
			},
			shown: map[string]string{
				"lm_head.weight":                         "lm_head.weight",
				"model.layers.3.self_attn.q_proj.weight": "model.language_model.layers.3.self_attn.q_proj.weight",
				"model.norm.weight":                      "model.language_model.norm.weight",
				"model.visual_tokens.weight":             "model.visual_tokens.weight",
			},
			waived: map[string]string{
				"model.vision_tower.x": "vision encoder", "model.embed_vision.embedding_projection.weight": "vision projector",
				"model.audio_tower.y": "audio encoder", "model.embed_audio.z": "audio projector", "model.multi_modal_projector.w": "multimodal projector",
			},
			multimodal: true,
		},
		{
			name:  "presented name is taken",
			names: []string{"model.norm.weight", "model.language_model.norm.weight", "language_model.model.norm.weight", "language_model.head.weight", "model.language_model.head.weight"},
			shown: map[string]string{
				"model.norm.weight": "model.norm.weight", "model.language_model.norm.weight": "model.language_model.norm.weight",
				"language_model.model.norm.weight": "language_model.model.norm.weight",
				"model.head.weight":                "language_model.head.weight",
				"model.language_model.head.weight": "model.language_model.head.weight",
			},
			multimodal: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tensors []Tensor
			value := make(map[string]int64)
			for i, name := range tc.names {
				tensors = append(tensors, NewInt32(name, []int{1}, []int32{int32(i)}))
				value[name] = int64(i)
			}
			f := throughFile(t, tensors...)
			v := newCheckpoint([]*File{f}).Text()
			got := make(map[string]string)
			for _, name := range v.Names() {
				got[name], _ = v.Original(name)
				x := get(t, v, name)
				ints, err := ReadInts(x)
				if err != nil || x.Name() != name || ints[0] != value[got[name]] {
					t.Errorf("%s: tensor %s holds %v, error %v", name, x.Name(), ints, err)
				}
			}
			if d := cmp.Diff(tc.shown, got); d != "" {
				t.Errorf("presented: %s", d)
			}
			if !slices.IsSorted(v.Names()) {
				t.Errorf("names are not sorted: %v", v.Names())
			}
			var waived map[string]string
			for _, w := range v.Waived() {
				if waived == nil {
					waived = make(map[string]string)
				}
				waived[w.Name] = w.Reason
				if w.Bytes != 4 {
					t.Errorf("%s: %d bytes", w.Name, w.Bytes)
				}
			}
			if d := cmp.Diff(tc.waived, waived); d != "" {
				t.Errorf("waived: %s", d)
			}
			if v.Multimodal() != tc.multimodal {
				t.Errorf("multimodal %v", v.Multimodal())
			}
		})
	}
}
