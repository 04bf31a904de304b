package reference

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/drafter"
)

// mtp is a stack of multi-token-prediction modules. Module k reads at position t
// the hidden state of t (the trunk's before its final norm for module 0, what
// the module before returned for others) and the embedding of token t+1+k, and
// guesses token t+2+k.
type mtp struct {
	Config
	src   Source
	scale float32
	head  string // tensor of the head
}

func (d *DraftSource) openMTP(config []byte) error {
	root, err := parseObject("config.json", config)
	if err != nil {
		return err
	}
	m := &mtp{src: d.src}
	root.texts("architectures")
	root.textOr("model_type", "mtp_modules")
	m.Hidden, m.Intermediate, m.Vocab = root.size("hidden_size"), root.size("intermediate_size"), root.size("vocab_size")
	m.Heads, m.KVHeads, m.HeadDim = root.size("num_attention_heads"), root.size("num_kv_heads"), root.size("head_dim")
	m.NormEps, m.Window, m.Layers = root.number("rms_norm_eps"), root.size("kv_window"), root.size("num_modules")
	m.FullRope = Rope{Type: "default", Theta: root.number("rope_theta")}
	m.FinalSoftcap = float32(root.numberOr("logit_softcap", 0))
	m.Activation = root.text("hidden_act")
	if root.textOr("embed_scale", "sqrt(hidden_size)") != "sqrt(hidden_size)" {
		root.fail("embed_scale: want sqrt(hidden_size)")
	}
	if m.head = "embed_tokens.weight"; !root.flagOr("tie_word_embeddings", true) {
		m.head = "lm_head.weight"
	}
	m.scale = float32(math.Sqrt(float64(m.Hidden)))
	if _, ok := activations[m.Activation]; root.err == nil && !ok {
		root.fail("activation %q is not supported", m.Activation)
	}
	root.refuseRest(neutral)
	if root.err != nil {
		return root.err
	}
	want := map[string][]int{"embed_tokens.weight": {m.Vocab, m.Hidden}, m.head: {m.Vocab, m.Hidden}}
	H, q, kv := m.Hidden, m.Heads*m.HeadDim, m.KVHeads*m.HeadDim
	for k := range m.Layers {
		p := mtpName(k, "")
		for name, shape := range map[string][]int{
			"input_proj": {H, 2 * H}, "attn.q_proj": {q, H}, "attn.k_proj": {kv, H}, "attn.v_proj": {kv, H}, "attn.o_proj": {H, q},
			"attn.q_norm": {m.HeadDim}, "attn.k_norm": {m.HeadDim}, "final_norm": {H}, "input_layernorm": {H}, "post_attention_layernorm": {H},
			"pre_feedforward_layernorm": {H}, "post_feedforward_layernorm": {H},
			"mlp.gate_proj": {m.Intermediate, H}, "mlp.up_proj": {m.Intermediate, H}, "mlp.down_proj": {H, m.Intermediate},
		} {
			want[p+name+".weight"] = shape
		}
	}
	if err := checkDrafterTensors(d.src, want, nil, nil); err != nil {
		return err
	}
	d.embeds = true
	d.needs = drafter.Needs{Hidden: H, Vocab: m.Vocab, Norm: drafter.Pre}
	d.begin = func(drafter.Embedder) drafter.Session { return &mtpSession{m: m, needs: d.needs, tracks: m.tracks()} }
	return nil
}

func mtpName(k int, what string) string { return fmt.Sprintf("modules_list.%d.%s", k, what) }

// mtpTrack is how far a module has come: keys and values of its positions, and
// what it returned.
type mtpTrack struct{ k, v, out *Matrix }

func (m *mtp) tracks() []mtpTrack {
	t := make([]mtpTrack, m.Layers)
	for i := range t {
		t[i] = mtpTrack{&Matrix{}, &Matrix{}, &Matrix{}}
	}
	return t
}

func (m *mtp) sheet() *sheet {
	return &sheet{weights: weightReader{src: m.src}, eps: m.NormEps, act: activations[m.Activation]}
}

// step runs module k over hidden states and the tokens beside them, at positions
// from that of the track's next row on.
func (m *mtp) step(s *sheet, k int, hidden *Matrix, tokens []int32, t mtpTrack) mtpTrack {
	p, at := mtpName(k, ""), t.k.Rows
	x := beside(hidden, s.embeddings("embed_tokens.weight", m.Hidden, m.scale, nil, tokens...))
	x = s.linear(x, p+"input_proj.weight", m.Hidden)
	a := s.norm(x, p+"input_layernorm.weight", m.Hidden)
	q := rotated(s.norm(s.linear(a, p+"attn.q_proj.weight", m.Heads*m.HeadDim), p+"attn.q_norm.weight", m.HeadDim), m.FullRope, at, m.HeadDim)
	key := rotated(s.norm(s.linear(a, p+"attn.k_proj.weight", m.KVHeads*m.HeadDim), p+"attn.k_norm.weight", m.HeadDim), m.FullRope, at, m.HeadDim)
	t.k, t.v = below(t.k, key), below(t.v, s.linear(a, p+"attn.v_proj.weight", m.KVHeads*m.HeadDim))
	a = s.attend(q, t.k, t.v, heads{query: m.Heads, kv: m.KVHeads, dim: m.HeadDim, scale: float32(1 / math.Sqrt(float64(m.HeadDim))),
		span: func(row int) (int, int) { return max(0, at+row-m.Window+1), at + row + 1 }})
	x = s.add(x, s.norm(s.linear(a, p+"attn.o_proj.weight", m.Hidden), p+"post_attention_layernorm.weight", m.Hidden))
	f := s.mlp(s.norm(x, p+"pre_feedforward_layernorm.weight", m.Hidden), p+"mlp.", m.Intermediate)
	x = s.add(x, s.norm(f, p+"post_feedforward_layernorm.weight", m.Hidden))
	t.out = below(t.out, s.norm(x, p+"final_norm.weight", m.Hidden))
	return t
}

// logits of what a module returned: the trunk's head and soft cap.
func (m *mtp) logits(s *sheet, out *Matrix) *Matrix {
	l := s.linear(out, m.head, m.Vocab)
	if m.FinalSoftcap != 0 {
		softcap(l.Data, m.FinalSoftcap)
	}
	return l
}

// advance runs all modules over every position whose token is in text.
func (m *mtp) advance(s *sheet, trunk *Matrix, text []int32, tracks []mtpTrack, upTo int) {
	for k := range upTo {
		in := trunk
		if k > 0 {
			in = tracks[k-1].out
		}
		at := tracks[k].k.Rows
		n := min(in.Rows, len(text)-1-k) - at
		if n <= 0 {
			continue
		}
		hidden := &Matrix{Rows: n, Cols: in.Cols, Data: in.Data[at*in.Cols : (at+n)*in.Cols]}
		tracks[k] = m.step(s, k, hidden, text[at+1+k:at+1+k+n], tracks[k])
	}
}

// mtpSession keeps the trunk's states of a text.
type mtpSession struct {
	m      *mtp
	needs  drafter.Needs
	tokens []int32
	trunk  []float32
	tracks []mtpTrack
}

func (s *mtpSession) Needs() drafter.Needs { return s.needs }
func (s *mtpSession) Position() int        { return len(s.tokens) }
func (s *mtpSession) MaxDraft() int        { return s.m.Layers }
func (s *mtpSession) Reset()               { s.tokens, s.trunk, s.tracks = nil, nil, s.m.tracks() }

func (s *mtpSession) states() *Matrix {
	return &Matrix{Rows: len(s.tokens), Cols: s.m.Hidden, Data: s.trunk}
}

func (s *mtpSession) Commit(rows drafter.Rows) error {
	if err := s.needs.Check(rows, len(s.tokens)); err != nil {
		return err
	}
	s.tokens, s.trunk = append(s.tokens, rows.Tokens...), append(s.trunk, rows.Hidden...)
	sh := s.m.sheet()
	s.m.advance(sh, s.states(), s.tokens, s.tracks, s.m.Layers)
	return sh.err
}

func (s *mtpSession) Draft(next int32, n int) (drafter.Draft, error) {
	var out drafter.Draft
	if err := checkDraft(len(s.tokens), next, s.m.Vocab, n, s.m.Layers); err != nil {
		return out, err
	}
	sh := s.m.sheet()
	text, tracks := append(slices.Clone(s.tokens), next), slices.Clone(s.tracks)
	for k := range n {
		s.m.advance(sh, s.states(), text, tracks, k+1)
		last := tracks[k].out
		logits := s.m.logits(sh, &Matrix{Rows: 1, Cols: last.Cols, Data: last.Row(last.Rows - 1)}).Data
		if sh.err != nil {
			return drafter.Draft{}, sh.err
		}
		id := first(logits)
		text = append(text, id)
		out.Tokens, out.Logits = append(out.Tokens, id), append(out.Logits, logits)
	}
	return out, nil
}
