package reference

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
)

// TestRecordedFaults repeats the deliberate mistakes whose effect was recorded
// with each golden, and expects the same effect: the reference can fail, and it
// fails by the amount PyTorch does.
func TestRecordedFaults(t *testing.T) {
	const noise = 2e-4 // of logits, between two fp32 programs
	theta := func(r *Rope, factor float64) { r.Theta *= factor }
	faults := map[string]func(m *Model){
		"rope_theta_x2":                    func(m *Model) { theta(&m.config.FullRope, 2); theta(&m.config.SlidingRope, 2) },
		"rope_theta_x2[full_attention]":    func(m *Model) { theta(&m.config.FullRope, 2) },
		"rope_theta_x2[sliding_attention]": func(m *Model) { theta(&m.config.SlidingRope, 2) },
		"rope_thetas_swapped": func(m *Model) {
			m.config.FullRope.Theta, m.config.SlidingRope.Theta = m.config.SlidingRope.Theta, m.config.FullRope.Theta
		},
		"rope_llama3_scaling_dropped": func(m *Model) { setRopes(m, Rope{Type: "default", Theta: m.config.FullRope.Theta}) },
		"rope_llama3_as_linear": func(m *Model) {
			setRopes(m, Rope{Type: "linear", Theta: m.config.FullRope.Theta, Factor: m.config.FullRope.Factor})
		},
		"window_plus_1":              func(m *Model) { m.config.Window++ },
		"window_minus_1":             func(m *Model) { m.config.Window-- },
		"no_window":                  func(m *Model) { m.config.Window = 1 << 20 },
		"scale_from_head_dim":        func(m *Model) { m.config.ScoreScale = inverseRoot(float64(m.config.HeadDim)) },
		"norm_w_instead_of_1_plus_w": func(m *Model) { m.config.UnitOffset = false },
		"rms_eps_1e-3":               func(m *Model) { m.config.NormEps = 1e-3 },
		"embed_scale_dropped":        func(m *Model) { m.config.EmbedScale = 1 },
		"gelu_erf_instead_of_tanh":   func(m *Model) { m.config.Activation = "gelu" },
		"qkv_bias_dropped":           func(m *Model) { m.config.QKVBias = false },

		"softcap_dropped": func(m *Model) { m.config.FinalSoftcap = 0 },
		"q_norm_dropped": func(m *Model) {
			m.skipNorm = func(name string) bool { return strings.HasSuffix(name, ".q_norm.weight") }
		},
		"k_norm_dropped": func(m *Model) {
			m.skipNorm = func(name string) bool { return strings.HasSuffix(name, ".k_norm.weight") }
		},
		"qk_norm_weights_ignored": func(m *Model) {
			one := float32(1)
			if m.config.UnitOffset {
				one = 0
			}
			rewrite(t, m, []string{"q_norm", "k_norm"}, func(_ int, w *Matrix) { fill(w, one) })
		},
		"v_norm_dropped":       func(m *Model) { m.config.VNorm = false },
		"layer_scalar_dropped": func(m *Model) { m.config.LayerScalar = false },
		"attention_scale_rsqrt_d": func(m *Model) {
			rewrite(t, m, []string{"q_norm"}, func(_ int, w *Matrix) { scale(w, inverseRoot(float64(w.Rows))) })
		},
		"kv_share_from_first_layer_of_type": func(m *Model) {
			m.config.KVSource = slices.Clone(m.config.KVSource)
			for layer, source := range m.config.KVSource {
				if source != layer {
					m.config.KVSource[layer] = slices.Index(m.config.Kinds, m.config.Kinds[layer])
				}
			}
		},
		"partial_rotary_dropped(all_pairs_rotate)": func(m *Model) { m.config.FullRope.Partial = 1 },
		// θ^(−2i/(part·d)) = (θ^(1/part))^(−2i/d)
		"partial_rotary_exponent_over_rotated_dim": func(m *Model) {
			r := &m.config.FullRope
			r.Theta = math.Pow(r.Theta, 1/r.Partial)
		},
		// Rotating other pairs is rotating the usual ones of a head whose
		// dimensions are in another order: scores do not depend on the order.
		"rope_interleaved_pairs": func(m *Model) {
			reorder(t, m, func(_ Layer, i, half int) int { return i/2 + i%2*half })
		},
		"partial_rotary_on_leading_slice": func(m *Model) {
			part := m.config.FullRope.Partial
			reorder(t, m, func(l Layer, i, half int) int {
				turning := int(part * float64(half)) // pairs
				switch {
				case l.Kind != FullAttention || i < turning || i >= half+turning:
					return i
				case i < 2*turning:
					return half + i - turning
				default:
					return i - turning
				}
			})
		},
		"ple_token_scale_dropped": func(m *Model) { m.config.PerLayer.TokenScale = 1 },
		// The norm that follows hides these two from the logits almost wholly.
		"ple_combine_scale_dropped":    func(m *Model) { m.config.PerLayer.CombineScale = 1 },
		"ple_projection_scale_dropped": func(m *Model) { m.config.PerLayer.ProjectionScale = 1 },
		"ple_token_part_zero":          func(m *Model) { m.config.PerLayer.TokenScale = 0 },
	}
	seen := map[string]bool{}
	for _, g := range goldens(t) {
		intact := openModel(t, g.dir)
		base, err := intact.Forward(t.Context(), g.ids, Options{Head: true})
		if err != nil {
			t.Fatal(err)
		}
		for fault, inject := range faults {
			recorded, ok := g.info.Sensitivity[fault]
			if !ok {
				continue
			}
			seen[fault] = true
			t.Run(g.name+"/"+fault, func(t *testing.T) {
				m := &Model{config: intact.config, src: intact.src}
				inject(m)
				r, err := m.Forward(t.Context(), g.ids, Options{Head: true})
				if err != nil {
					t.Fatal(err)
				}
				late := g.info.LatePositions
				var peak, sum float64
				n := 0
				for p := late[0]; p < late[1]; p++ {
					for i, x := range r.Logits.Row(p) {
						d := math.Abs(float64(x) - float64(base.Logits.Row(p)[i]))
						peak = max(peak, d)
						sum += d
						n++
					}
				}
				mean := sum / float64(n)
				near := func(what string, got, want float64) {
					if math.Abs(got-want) > max(0.02*want, noise) {
						t.Errorf("%s: %.4g, recorded %.4g", what, got, want)
					}
				}
				near("max |Δlogit|", peak, recorded["max_abs_dlogit"])
				near("mean |Δlogit|", mean, recorded["mean_abs_dlogit"])
			})
		}
	}
	for fault := range faults {
		if !seen[fault] {
			t.Errorf("no golden records %s", fault)
		}
	}
}

// rewrite replaces stored matrices of the modules in every layer. A vector is a
// matrix with one column.
func rewrite(t testing.TB, m *Model, modules []string, change func(layer int, w *Matrix)) {
	t.Helper()
	with := map[string]checkpoint.Tensor{}
	if p, ok := m.src.(patched); ok {
		maps.Copy(with, p.with)
	}
	for layer := range m.config.Layers {
		for _, module := range modules {
			name := fmt.Sprintf("model.layers.%d.self_attn.%s.weight", layer, module)
			if _, ok := m.src.Tensor(name); !ok {
				continue // of a layer that shares
			}
			shape, v := values(t, m.src, name)
			w := &Matrix{Rows: shape[0], Cols: len(v) / shape[0], Data: v}
			change(layer, w)
			with[name] = f32(name, shape, w.Data)
		}
	}
	m.src = patched{m.src, with}
}

// reorder moves dimension i of every head of q and k to place(i).
func reorder(t testing.TB, m *Model, place func(l Layer, i, half int) int) {
	t.Helper()
	rewrite(t, m, []string{"q_proj", "k_proj", "q_norm", "k_norm"}, func(layer int, w *Matrix) {
		l, old := m.config.Layer(layer), w.Clone()
		for r := range w.Rows {
			i := r % l.HeadDim
			copy(w.Row(r-i+place(l, i, l.HeadDim/2)), old.Row(r))
		}
	})
}

func fill(w *Matrix, x float32) {
	for i := range w.Data {
		w.Data[i] = x
	}
}

func scale(w *Matrix, by float32) {
	for i := range w.Data {
		w.Data[i] *= by
	}
}

func setRopes(m *Model, r Rope) { m.config.FullRope, m.config.SlidingRope = r, r }
