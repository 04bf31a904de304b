package sensitivity

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/capture"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/fixtures"
	eager "github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/replay"
)

// llama writes a random target for the drafter fixtures: width 64, 512 tokens, ten
// layers.
func llama(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const hidden, vocab, layers, inner = 64, 512, 10, 96
	config := fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "bos_token_id": 1, "eos_token_id": 2,
"head_dim": 16, "hidden_act": "silu", "hidden_size": %d, "intermediate_size": %d, "max_position_embeddings": 256, "mlp_bias": false,
"num_attention_heads": 4, "num_hidden_layers": %d, "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
"tie_word_embeddings": true, "vocab_size": %d}`, hidden, inner, layers, vocab)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 5))
	var list []checkpoint.Tensor
	put := func(name string, scale float64, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		w := make([]float32, n)
		for i := range w {
			w[i] = float32(scale * rng.NormFloat64())
			if len(shape) == 1 {
				w[i]++
			}
		}
		list = append(list, checkpoint.NewFloat32(name, shape, w))
	}
	put("model.embed_tokens.weight", 0.5, vocab, hidden)
	put("model.norm.weight", 0.1, hidden)
	for l := range layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		put(p+"input_layernorm.weight", 0.1, hidden)
		put(p+"post_attention_layernorm.weight", 0.1, hidden)
		put(p+"self_attn.q_proj.weight", 0.1, 64, hidden)
		put(p+"self_attn.k_proj.weight", 0.1, 32, hidden)
		put(p+"self_attn.v_proj.weight", 0.1, 32, hidden)
		put(p+"self_attn.o_proj.weight", 0.1, hidden, 64)
		put(p+"mlp.gate_proj.weight", 0.1, inner, hidden)
		put(p+"mlp.up_proj.weight", 0.1, inner, hidden)
		put(p+"mlp.down_proj.weight", 0.1, hidden, inner)
	}
	if err := checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), list, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// drafting is a drafter with the states of its target.
type drafting struct {
	dir, targetDir string
	d              *replay.Drafter
	target         *Model
	states         *capture.States
	in             *DraftStates
	rows           []drafter.Rows
}

func fixtureDir(t *testing.T, name string) string {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// prepare captures what the drafter in dir reads.
func prepare(t *testing.T, dir, target string, taps []int) *drafting {
	t.Helper()
	x := &drafting{dir: dir, targetDir: target}
	var err error
	if x.target, err = Open(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.target.Close() })
	if x.d, err = replay.Open(dir, replay.OpenOptions{Target: x.target.Decoder, Taps: taps}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.d.Close() })
	n := x.d.Needs()
	o := capture.Options{Taps: n.Taps, Norms: []string{capture.Post}, DType: checkpoint.F32, Sequences: 2, Source: x.target.Source.SHA256}
	if n.Norm == capture.Pre {
		o.Norms = append(o.Norms, capture.Pre)
	}
	for _, k := range []string{"full", "sliding"} {
		if _, ok := n.Keys[k]; ok {
			o.Keys = append(o.Keys, k)
		}
	}
	out := t.TempDir()
	if _, err := capture.Run(t.Context(), x.target.Decoder, texts(x.target, 3, 12), out, o); err != nil {
		t.Fatal(err)
	}
	if x.states, err = capture.Open(out); err != nil {
		t.Fatal(err)
	}
	if x.in, err = NewDraftStates(x.d, x.states, x.target); err != nil {
		t.Fatal(err)
	}
	if x.rows, err = x.states.Rows(n); err != nil {
		t.Fatal(err)
	}
	return x
}

// kinds prepares every kind of drafter.
func kinds(t *testing.T) map[string]*drafting {
	target := llama(t)
	mtp := fixtureDir(t, "gemma4-mtp")
	return map[string]*drafting{
		"eagle3":    prepare(t, fixtureDir(t, "drafters/eagle3-llama"), target, []int{1, 3, 6}),
		"mtp":       prepare(t, fixtureDir(t, "drafters/mtp-modules"), target, nil),
		"dspark":    prepare(t, fixtureDir(t, "drafters/dspark-forward"), target, nil),
		"assistant": prepare(t, filepath.Join(mtp, "assistant"), mtp, nil),
		"model":     prepare(t, "../speculate/testdata/tiny-gemma3-drafter", fixtureDir(t, "tiny-gemma3-target"), nil),
	}
}

// probed is a module of each kind whose change reaches the first draft.
var probed = map[string]string{"eagle3": "midlayer.self_attn.o_proj", "mtp": "modules_list.0.input_proj", "dspark": "fc",
	"assistant": "model.layers.1.mlp.down_proj", "model": "model.embed_tokens"}

// firstDrafts are the first drafts of the reference, a checkpoint run by itself,
// behind all bases.
func firstDrafts(t *testing.T, x *drafting, dir string, taps []int) (out [][]float32) {
	t.Helper()
	m, err := eager.Open(x.targetDir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if x.d.Kind() == replay.SmallModel {
		small, err := eager.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer small.Close()
		for _, r := range x.rows {
			res, err := small.Forward(t.Context(), r.Tokens, eager.Options{Head: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range replay.Every(len(r.Tokens), 2, 1) {
				out = append(out, res.Logits.Row(n))
			}
		}
		return out
	}
	src, err := eager.OpenDraftSource(dir, eager.DraftOptions{Taps: taps})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	s, err := src.NewSession(m.Embedder())
	if err != nil {
		t.Fatal(err)
	}
	needs := x.d.Needs()
	for _, r := range x.rows {
		s.Reset()
		for _, n := range replay.Every(len(r.Tokens), 2, 1) {
			// One token after the other.
			one := drafter.Rows{Position: n - 1, Tokens: r.Tokens[n-1 : n], Norm: r.Norm, Keys: map[string][]float32{}, Values: map[string][]float32{}}
			w := len(needs.Taps) * needs.Hidden
			one.Taps = r.Taps[(n-1)*w : n*w]
			if needs.Norm != "" {
				one.Hidden = r.Hidden[(n-1)*needs.Hidden : n*needs.Hidden]
			}
			for k, shape := range needs.Keys {
				w := shape.Heads * shape.HeadDim
				one.Keys[k], one.Values[k] = r.Keys[k][(n-1)*w:n*w], r.Values[k][(n-1)*w:n*w]
			}
			if err := s.Commit(one); err != nil {
				t.Fatal(err)
			}
			d, err := s.Draft(r.Tokens[n], 1)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, slices.Clone(d.Logits[0]))
		}
	}
	return out
}

// probabilities are those of logits; −Inf has none.
func probabilities(z []float32) []float64 {
	p := make([]float64, len(z))
	peak, sum := float64(slices.Max(z)), 0.0
	for i, v := range z {
		p[i] = math.Exp(float64(v) - peak)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// Figures of the first draft are those of whole distributions of the reference, on
// a checkpoint that really holds the decoded matrix, against the target's.
func TestMeasureDrafter(t *testing.T) {
	formats := []quant.Format{affine(3, 32), affine(8, 32), {Codec: "turboquant", Bits: 3, GroupSize: 32, Method: quant.RTN}}
	if testing.Short() {
		formats = formats[:2] // each is one more model that the reference runs
	}
	for name, x := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			var taps []int
			if name == "eagle3" {
				taps = []int{1, 3, 6}
			}
			m, err := MeasureDrafter(t.Context(), x.d, x.dir, x.in, DrafterOptions{Gamma: 2, Formats: formats})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(m.Tensors, func(t Tensor) bool { return t.Path == probed[name] })
			if i < 0 {
				t.Fatalf("no tensor %s in the map", probed[name])
			}
			tensor := m.Tensors[i]
			full := firstDrafts(t, x, x.dir, taps)
			var target [][]float64
			ref, err := eager.Open(x.targetDir)
			if err != nil {
				t.Fatal(err)
			}
			defer ref.Close()
			for _, r := range x.rows {
				res, err := ref.Forward(t.Context(), r.Tokens, eager.Options{Head: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range replay.Every(len(r.Tokens), 2, 1) {
					target = append(target, probabilities(res.Logits.Row(n)))
				}
			}
			for _, c := range tensor.Candidates {
				changed := t.TempDir()
				swap(t, x, changed, tensor.Path, c.Format)
				var kl, loss float64
				for row, z := range firstDrafts(t, x, changed, taps) {
					p, q, orig := target[row], probabilities(z), probabilities(full[row])
					for i := range q {
						if orig[i] > 0 {
							kl += orig[i] * math.Log(orig[i]/q[i]) / float64(len(full))
						}
						loss += (min(p[i], orig[i]) - min(p[i], q[i])) / float64(len(full))
					}
				}
				// A clustered head jumps where two clusters are nearly as good.
				tolerance := 1e-4 + 0.01*kl
				if math.Abs(c.Draft.KL[0]-kl) > tolerance || math.Abs(c.Draft.Loss[0]-loss) > tolerance {
					t.Errorf("%s: KL %.6f, acceptance lost %+.6f; the reference says %.6f and %+.6f", Name(c.Format), c.Draft.KL[0], c.Draft.Loss[0], kl, loss)
				}
				if c.Damage <= 0 || len(c.Draft.KL) != 2 {
					t.Errorf("%s: damage %v, KL %v", Name(c.Format), c.Damage, c.Draft.KL)
				}
			}
			if a, b := tensor.Candidates[0].Damage, tensor.Candidates[1].Damage; a <= b {
				t.Errorf("3 bits do damage of %g, 8 bits of %g", a, b)
			}
			if w := m.Drafter.Weights; w[0] <= w[1] || m.Drafter.Acceptance[0] <= 0 {
				t.Errorf("weights %v of acceptance %v", w, m.Drafter.Acceptance)
			}
		})
	}
}

// swap copies a checkpoint with one matrix as a format decodes it.
func swap(t *testing.T, x *drafting, out, path string, f quant.Format) {
	t.Helper()
	var list []checkpoint.Tensor
	for _, name := range x.d.Source().Names() {
		s, _ := x.d.Source().Tensor(name)
		if name == path+".weight" {
			e, err := encode(t.Context(), f, s)
			if err != nil {
				t.Fatal(err)
			}
			if s, err = e.dense(); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, s)
	}
	if err := checkpoint.WriteFile(filepath.Join(out, "model.safetensors"), list, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "config.json"), x.d.Config(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Parts, and runs that go on, have the bytes of one run; calibrated candidates
// among them.
func TestDrafterParts(t *testing.T) {
	x := prepare(t, fixtureDir(t, "drafters/mtp-modules"), llama(t), nil)
	o := DrafterOptions{Formats: []quant.Format{affine(4, 32), {Codec: "affine", Bits: 4, GroupSize: 32, Method: quant.ErrorFeedback},
		{Codec: "turboquant", Bits: 4, GroupSize: 32, Method: quant.ErrorFeedback}}}
	run := func(o DrafterOptions) *Map {
		t.Helper()
		m, err := MeasureDrafter(t.Context(), x.d, x.dir, x.in, o)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	whole := run(o)
	if back, err := Parse(whole.Marshal()); err != nil || !bytes.Equal(back.Marshal(), whole.Marshal()) {
		t.Errorf("the map does not survive reading: %v", err)
	}
	var parts []*Map
	for i := range 3 {
		p := o
		p.Shard = &Shard{i + 1, 3}
		parts = append(parts, run(p))
	}
	merged, err := Merge(parts...)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(merged.Marshal(), whole.Marshal()) {
		t.Error("merged parts are not the whole map")
	}
	journal := filepath.Join(t.TempDir(), "j")
	o.Journal = journal
	run(o)
	data, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	cut := bytes.Join(lines[:4], nil)
	if err := os.WriteFile(journal, append(cut, lines[4][:7]...), 0o644); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(run(o).Marshal(), whole.Marshal()) {
		t.Error("a run that went on is not the whole map")
	}
	o.Formats = o.Formats[:2]
	if _, err := MeasureDrafter(t.Context(), x.d, x.dir, x.in, o); err == nil || !strings.Contains(err.Error(), "belongs to another run") {
		t.Errorf("a journal of other candidates: %v", err)
	}
	better := 0
	for _, c := range whole.Tensors {
		if c.Candidates[1].OutputError == nil {
			t.Errorf("%s: error feedback saw no inputs", c.Path)
		}
		if c.Candidates[1].Damage < c.Candidates[0].Damage {
			better++
		}
	}
	if 2*better <= len(whole.Tensors) {
		t.Errorf("error feedback does less damage in %d of %d tensors only", better, len(whole.Tensors))
	}
}
