package chunking_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
)

// published are the numbers of the two sizes of Gemma 4.
func published(t testing.TB, layers, hidden, kv, shared, every int) *models.Config {
	t.Helper()
	kinds := make([]string, layers)
	for i := range kinds {
		if kinds[i] = "sliding_attention"; (i+1)%every == 0 {
			kinds[i] = "full_attention"
		}
	}
	data, err := json.Marshal(map[string]any{
		"architectures": []string{"Gemma4ForCausalLM"}, "model_type": "gemma4_text",
		"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": 4 * hidden, "vocab_size": 262144,
		"num_attention_heads": 8, "num_key_value_heads": kv, "head_dim": 256, "global_head_dim": 512,
		"hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "max_position_embeddings": 131072, "sliding_window": 512,
		"hidden_size_per_layer_input": 256, "num_kv_shared_layers": shared, "use_double_wide_mlp": true, "final_logit_softcapping": 30,
		"layer_types": kinds, "rope_parameters": map[string]any{
			"full_attention":    map[string]any{"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := models.ParseConfig(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestCoreMLLLMShapes: names and shapes of E2B in four chunks are those that
// the app's loader looks for.
func TestCoreMLLLMShapes(t *testing.T) {
	cfg := published(t, 35, 1536, 1, 20, 5)
	cut, err := chunking.Topology4.Cut(cfg, chunking.Sizes{}, chunking.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := chunking.Design(cfg, chunking.Options{Context: 2048, Ranges: cut, Functions: functions(t, "decode,verify:3,prefill:1024"),
		KV: chunking.KVCoreMLLLM, Embed: chunking.EmbedSidecar, Compute: "fp16", Head: chunking.Head{Token: true, Hidden: "post"}})
	if err != nil {
		t.Fatal(err)
	}
	common := "hidden_states 1,T,1536; causal_mask_full 1,1,T,2048; causal_mask_sliding 1,1,T,"
	rows := "cos_s 1,1,T,256; sin_s 1,1,T,256; cos_f 1,1,T,512; sin_f 1,1,T,512; "
	for _, tt := range []struct {
		function        string
		T               int
		window, combine string
		c1, c2, c34     string // further inputs
		out1, out2      string
		out4            string
	}{
		{"decode_q1", 1, "512; ", "update_mask 1,1,2048,1; ",
			"K_sliding_in 7,1,512,512; V_sliding_in 7,1,512,512; K_full_in 1,1,2048,512; V_full_in 1,1,2048,512",
			"K_sliding_in 5,1,512,512; V_sliding_in 5,1,512,512; K_full_in 2,1,2048,512; V_full_in 2,1,2048,512",
			"kv13_k 1,1,512,256; kv13_v 1,1,512,256; kv14_k 1,1,2048,512; kv14_v 1,1,2048,512",
			"K_sliding_out 7,1,512,512; V_sliding_out 7,1,512,512; K_full_out 1,1,2048,512; V_full_out 1,1,2048,512",
			"K_sliding_out 5,1,512,512; V_sliding_out 5,1,512,512; K_full_out 2,1,2048,512; V_full_out 2,1,2048,512",
			"token_id 1,1; token_logit 1,1; hidden_states_out 1,1,1536"},
		{"verify_q3", 3, "515; ", "update_indicator 1,1,2048,3; ",
			"K_sliding_in 7,1,512,512; V_sliding_in 7,1,512,512; K_full_in 1,1,2048,512; V_full_in 1,1,2048,512",
			"K_sliding_in 5,1,512,512; V_sliding_in 5,1,512,512; K_full_in 2,1,2048,512; V_full_in 2,1,2048,512",
			"kv13_k 1,1,515,256; kv13_v 1,1,515,256; kv14_k 1,1,2048,512; kv14_v 1,1,2048,512",
			"new_K_sliding 7,1,3,256; new_V_sliding 7,1,3,256; new_K_full 1,1,3,512; new_V_full 1,1,3,512",
			"new_K_sliding 5,1,3,256; new_V_sliding 5,1,3,256; new_K_full 2,1,3,512; new_V_full 2,1,3,512",
			"token_ids 1,3; token_logit 1,3; hidden_states_out 1,3,1536"},
	} {
		T := fmt.Sprint(tt.T)
		wide := strings.ReplaceAll("1,T,8960", "T", T)
		start := strings.ReplaceAll(common, "T", T) + tt.window
		ropes := strings.ReplaceAll(rows, "T", T)
		hidden := strings.ReplaceAll("hidden_states_out 1,T,1536; ", "T", T)
		for i, want := range []struct{ in, out string }{
			{start + tt.combine + ropes + "per_layer_raw " + wide + "; " + tt.c1, hidden + tt.out1 + "; per_layer_combined_out " + wide},
			{start + tt.combine + ropes + "per_layer_combined " + wide + "; " + tt.c2, hidden + tt.out2 + "; " + tt.c34},
			{start + ropes + "per_layer_combined " + wide + "; " + tt.c34, strings.TrimSuffix(hidden, "; ")},
			{start + ropes + "per_layer_combined " + wide + "; " + tt.c34, tt.out4},
		} {
			f := c.Chunks[i].Function(tt.function)
			if f == nil {
				t.Fatalf("%s has no function %s", c.Chunks[i].Name, tt.function)
			}
			if d := cmp.Diff(strings.Split(want.in, "; "), short(f.Inputs)); d != "" {
				t.Errorf("%s %s: inputs (-want +got)\n%s", c.Chunks[i].Name, f.Name, d)
			}
			if d := cmp.Diff(strings.Split(want.out, "; "), short(f.Outputs)); d != "" {
				t.Errorf("%s %s: outputs (-want +got)\n%s", c.Chunks[i].Name, f.Name, d)
			}
		}
	}
	last := c.Chunks[3].Functions
	for i := range last {
		if p := chunking.Find(last[i].Outputs, models.HiddenOut, ""); p == nil || p.Norm != "post" {
			t.Errorf("%s: hidden_states_out %+v, want it tagged post", last[i].Name, p)
		}
	}
	if f := c.Chunks[0].Function("prefill_b1024"); f == nil || fmt.Sprint(chunking.Find(f.Inputs, models.Mask, models.Sliding).Shape) != "[1 1 1024 1536]" {
		t.Errorf("prefill: %+v", f)
	}
}

// short prints ports as "name 1,2,3".
func short(ports []chunking.Port) []string {
	var out []string
	for _, p := range ports {
		out = append(out, p.Name+" "+strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Shape), " ", ","), "[]"))
	}
	return out
}

// TestPartedProducers: the native form carries any cut, this one only those
// that leave the lenders together.
func TestPartedProducers(t *testing.T) {
	cfg := published(t, 42, 2560, 2, 18, 6)
	for layers, want := range map[string]string{
		"0-23,23-42": "the cut at layer 23 parts layers 22 and 23, whose keys and values later layers share; kv coreml-llm has one chunk emit both",
		"0-22,22-42": "",
		"0-24,24-42": "",
	} {
		ranges, err := chunking.ParseRanges(layers, 42)
		if err != nil {
			t.Fatal(err)
		}
		o := chunking.Options{Context: 64, Ranges: ranges, Functions: functions(t, "decode,verify:3"), KV: chunking.KVTensor,
			Embed: chunking.EmbedSidecar, Compute: "fp16", Head: chunking.Head{Token: true}}
		if _, err := chunking.Design(cfg, o); err != nil {
			t.Errorf("%s, kv tensor: %v", layers, err)
		}
		o.KV = chunking.KVCoreMLLLM
		_, err = chunking.Design(cfg, o)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", layers, err, want)
		}
	}
}

// TestCoreMLLLMByHand: a contract edited to disagree with itself is refused.
func TestCoreMLLLMByHand(t *testing.T) {
	o := options(t, chunking.KVCoreMLLLM, chunking.EmbedSidecar)
	o.Ranges = []chunking.Range{{First: 0, Last: 3}, {First: 3, Last: 5}, {First: 5, Last: 10}}
	for name, tt := range map[string]struct {
		old, new, want string
	}{
		"layout":   {`"layout": "shift"`, `"layout": "ring"`, `layout "ring"`},
		"stride":   {`"cache_head_dim": 32`, `"cache_head_dim": 8`, "cached rows of 8 for head_dim 16"},
		"window":   {`"window": 24`, `"window": 30`, "24 slots cannot hold a window of 30"},
		"kv":       {`"kv": "coreml-llm"`, `"kv": "tensor"`, `layout "shift"`},
		"a source": {`      3,` + "\n" + `      3,`, `      3,` + "\n" + `      2,`, "0 outputs have the role shared_keys of sliding attention"},
		"alias":    {`"shared_keys"`, `"shared_values"`, "have the role"},
	} {
		c := design(t, "gemma4-e2b", o)
		data, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		edited := strings.Replace(string(data), tt.old, tt.new, 1)
		if edited == string(data) {
			t.Errorf("%s: nothing to edit", name)
			continue
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, chunking.ContractFile), []byte(edited), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := chunking.ReadContract(dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
