package mlx

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/quant"
)

// module is a tensor under the path that it has in mlx-lm's model.
type module struct {
	name   string // "model.layers.0.mlp.down_proj.weight"
	tensor checkpoint.Tensor
	class  quant.Class
	layer  int
	linear bool // an embedding, a linear layer or a stack of them
}

// path is the module's path.
func (m *module) path() string { return strings.TrimSuffix(m.name, ".weight") }

// plainTypes are the models whose modules mlx-lm names as the checkpoint does.
var plainTypes = []string{"llama", "mistral", "qwen2", "qwen3", "gemma3_text", "smollm3", "gemma4_text"}

// layOut names the tensors of src as mlx-lm does after sanitize.
func layOut(c *object, src checkpoint.Source) (mods []module, warnings []string, err error) {
	kind := c.str("model_type")
	if kind == "" {
		return nil, nil, fmt.Errorf("mlx: config.json has no model_type, without which mlx-lm loads nothing")
	}
	prefix := ""
	switch {
	case kind == "gemma3" || kind == "gemma4":
		prefix = "language_model."
	case kind == "qwen3_moe" || kind == "mixtral" || slices.Contains(plainTypes, kind):
	default:
		warnings = append(warnings, fmt.Sprintf("model type %q is not known here: module paths are taken to be the checkpoint's names", kind))
	}
	t := text(c)
	tied, _ := t.values["tie_word_embeddings"].(bool)
	if v, ok := c.values["tie_word_embeddings"].(bool); ok {
		tied = v
	}
	if _, ok := t.get("tie_word_embeddings"); !ok && strings.HasPrefix(kind, "gemma") {
		tied = true
	}
	shared := sharedLayers(t)
	view := checkpoint.TextView(src)
	experts := map[string][]checkpoint.Tensor{}
	for _, name := range view.Names() {
		x, _ := view.Tensor(name)
		if name == "lm_head.weight" && tied || strings.Contains(name, "rotary_emb.inv_freq") || shared.drops(name) {
			continue
		}
		if stack, i, ok := expert(kind, name); ok {
			list := experts[stack]
			if i != len(list) {
				list = append(list, make([]checkpoint.Tensor, max(0, i+1-len(list)))...)
			} else {
				list = append(list, nil)
			}
			list[i] = x
			experts[stack] = list
			continue
		}
		mods = append(mods, newModule(prefix+name, x))
	}
	for name, list := range experts {
		s, err := newStack(prefix+name, list)
		if err != nil {
			return nil, nil, err
		}
		mods = append(mods, newModule(prefix+name, s))
	}
	slices.SortFunc(mods, func(a, b module) int { return natural(a.name, b.name) })
	return mods, warnings, nil
}

func newModule(name string, x checkpoint.Tensor) module {
	class, layer := quant.Classify(name)
	rank := len(x.Shape())
	return module{name: name, tensor: x, class: class, layer: layer,
		linear: strings.HasSuffix(name, ".weight") && (rank == 2 || rank == 3) && class != quant.Norm}
}

// sharing is Gemma 4's: the last layers read the keys and values of others, and
// mlx-lm has no projections there.
type sharing struct{ first int }

func sharedLayers(t *object) sharing {
	layers, _ := t.integer("num_hidden_layers")
	n, ok := t.integer("num_kv_shared_layers")
	if !ok || n == 0 {
		return sharing{-1}
	}
	return sharing{layers - n}
}

var keyValue = regexp.MustCompile(`layers\.(\d+)\.self_attn\.(k_proj|v_proj|k_norm)\.`)

func (s sharing) drops(name string) bool {
	m := keyValue.FindStringSubmatch(name)
	if s.first < 0 || m == nil {
		return false
	}
	i, err := strconv.Atoi(m[1])
	return err == nil && i >= s.first
}

var (
	qwenExpert    = regexp.MustCompile(`^(.*\.mlp)\.experts\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight$`)
	mixtralExpert = regexp.MustCompile(`^(.*\.block_sparse_moe)\.experts\.(\d+)\.(w1|w2|w3)\.weight$`)
)

// expert says which stack a tensor belongs to, and its place there.
func expert(kind, name string) (stack string, index int, ok bool) {
	re := map[string]*regexp.Regexp{"qwen3_moe": qwenExpert, "mixtral": mixtralExpert}[kind]
	if re == nil {
		return "", 0, false
	}
	m := re.FindStringSubmatch(name)
	if m == nil {
		return "", 0, false
	}
	index, err := strconv.Atoi(m[2])
	if err != nil || index > 1<<16 {
		return "", 0, false
	}
	part := m[3]
	if p, ok := map[string]string{"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}[part]; ok {
		part = p
	}
	return m[1] + ".switch_mlp." + part + ".weight", index, true
}

// natural orders names so that layer 2 comes before layer 10.
func natural(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		m, err1 := strconv.Atoi(x[i])
		n, err2 := strconv.Atoi(y[i])
		if err1 == nil && err2 == nil {
			if c := cmp.Compare(m, n); c != 0 {
				return c
			}
			continue
		}
		if c := cmp.Compare(x[i], y[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}
