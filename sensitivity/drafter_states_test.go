package sensitivity

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/capture"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/replay"
)

// quantize learns from the inputs that modules have on captured states.
func TestDraftInputs(t *testing.T) {
	x := prepare(t, fixtureDir(t, "drafters/dspark-forward"), llama(t), nil)
	in, err := DraftInputs(t.Context(), x.d, x.in, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	if h, _, err := in("embed_tokens"); h != nil || err != nil {
		t.Errorf("a table of which rows are gathered has inputs: %v", err)
	}
	if h, _, err := in("lm_head"); err != nil || h == nil || h.Cols != 64 || h.Tokens != 3*3*9 {
		t.Errorf("inputs of the head: %+v, %v", h, err)
	}
	r := quant.Uniform(3, 32)
	r.KeepIndivisible = true
	loss := map[quant.Method]float64{}
	for _, m := range []quant.Method{quant.Refit, quant.ErrorFeedback} {
		r.Default.Method = m
		rep, err := mlx.QuantizeDrafter(t.Context(), x.dir, filepath.Join(t.TempDir(), "q"), mlx.DrafterOptions{Options: mlx.Options{Recipe: r, Inputs: in}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range rep.Classes {
			if c.OutputError != nil {
				loss[m] += *c.OutputError / *c.OutputRTN
			}
		}
	}
	if f := loss[quant.ErrorFeedback]; !(f > 0) {
		t.Errorf("output errors %v", loss)
	}
}

// What a round reads is what a budget of reads counts.
func TestDrafterReads(t *testing.T) {
	x := prepare(t, fixtureDir(t, "drafters/dspark-forward"), llama(t), nil)
	m, err := MeasureDrafter(t.Context(), x.d, x.dir, x.in, DrafterOptions{Gamma: 3, Every: 4, Formats: []quant.Format{affine(4, 32), affine(8, 32),
		{Codec: "turboquant", Bits: 4, GroupSize: 16, Method: quant.RTN}}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"embed_tokens": 0, "lm_head": 1, "fc": 1, "markov_head.markov_w1": 0, "markov_head.markov_w2": 3,
		"layers.2.self_attn.k_proj": 2, "layers.4.mlp.down_proj": 1}
	for _, s := range m.Tensors {
		if n, ok := want[s.Path]; ok {
			if *s.Reads != n {
				t.Errorf("%s is read %v times a round, want %v", s.Path, *s.Reads, n)
			}
			delete(want, s.Path)
		}
		if strings.HasPrefix(s.Path, "confidence_head") {
			t.Errorf("%s may be coded", s.Path)
		}
	}
	if len(want) > 0 {
		t.Errorf("not in the map: %v", want)
	}
	lost, err := m.WithAcceptance()
	if err != nil {
		t.Fatal(err)
	}
	_, err = lost.Problem(ProblemOptions{Count: Reads, Allow: func(f quant.Format) bool { return f.Codec == "affine" }, Denoise: true})
	if err == nil {
		// markov_w2 has 16 columns: no group of affine divides it.
		t.Fatal("a tensor without a candidate was accepted")
	}
	p, err := m.Problem(ProblemOptions{Count: Reads, Denoise: true})
	if err != nil {
		t.Fatal(err)
	}
	low, high, err := p.Range()
	if err != nil {
		t.Fatal(err)
	}
	p.Cap = (low + high) / 2
	s, err := allocate.Solve(p.Problem)
	if err != nil {
		t.Fatal(err)
	}
	formats := p.Formats(s)
	if formats["embed_tokens"].Bits != 8 {
		t.Errorf("a table of which nothing is read got %d bits", formats["embed_tokens"].Bits)
	}
}

func TestDraftStatesRefuse(t *testing.T) {
	target := llama(t)
	x := prepare(t, fixtureDir(t, "drafters/mtp-modules"), target, nil)
	eagle, err := replay.Open(fixtureDir(t, "drafters/eagle3-llama"), replay.OpenOptions{Target: x.target.Decoder, Taps: []int{1, 3, 6}})
	if err != nil {
		t.Fatal(err)
	}
	defer eagle.Close()
	gemma := fixtureDir(t, "gemma4-mtp")
	g := prepare(t, filepath.Join(gemma, "assistant"), gemma, nil)
	post := t.TempDir()
	if _, err := capture.Run(t.Context(), x.target.Decoder, texts(x.target, 1, 8), post, capture.Options{Norms: []string{capture.Post}, DType: checkpoint.F32, Source: x.target.Source.SHA256}); err != nil {
		t.Fatal(err)
	}
	onlyPost, err := capture.Open(post)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		d      *replay.Drafter
		states *capture.States
		target *Model
		want   string
	}{
		"another target": {x.d, x.states, g.target, "states are those of another model"},
		"taps":           {eagle, x.states, x.target, "taps layers [1 3 6]"},
		"norm":           {x.d, onlyPost, x.target, "reads pre-norm hidden states"},
		"width":          {x.d, g.states, g.target, "hidden width of 64"},
		"keys":           {g.d, onlyPost, x.target, "reads keys and values"},
	} {
		if _, err := NewDraftStates(tt.d, tt.states, tt.target); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
	in, err := NewDraftStates(x.d, x.states, x.target)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]DrafterOptions{
		"drafts a round":     {Gamma: 3, Formats: []quant.Format{affine(4, 32)}},
		"nothing to measure": {},
		"given twice":        {Formats: []quant.Format{affine(4, 32), affine(4, 32)}},
		"shard 4 of 3":       {Formats: []quant.Format{affine(4, 32)}, Shard: &Shard{4, 3}},
		"can have any":       {Formats: []quant.Format{{Codec: "turboquant", Bits: 4, GroupSize: 256}}},
	} {
		if _, err := MeasureDrafter(t.Context(), x.d, x.dir, in, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
