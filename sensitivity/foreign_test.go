package sensitivity

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/quant"
)

// What was exported comes back as it was, as far as the format can hold it.
func TestForeignRoundTrip(t *testing.T) {
	m := openModel(t, "tiny-gemma3-target")
	mp := measured(t)
	data, err := mp.ExportOptiQ(32, quant.RTN)
	if err != nil {
		t.Fatal(err)
	}
	// Noise may make a wider format look worse; then the sign has to be said.
	back, err := Import(m, data, ImportOptions{Sign: SignDamage})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range mp.Tensors {
		for j, c := range a.Candidates {
			if d := back.Tensors[i].Candidates[j]; d.Format != c.Format || d.Damage != c.Damage || d.Bytes != c.Bytes {
				t.Errorf("%s: %+v, want %+v", a.Path, d, c)
			}
		}
	}
	data, err = mp.ExportMLX(3, 8, 32, quant.RTN)
	if err != nil {
		t.Fatal(err)
	}
	back, err = Import(m, data, ImportOptions{Low: 3, High: 8, Group: 32})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range mp.Tensors {
		x := back.Tensors[i]
		want := max(0, a.column(3, 32, quant.RTN).Damage-a.column(8, 32, quant.RTN).Damage)
		if math.Abs(x.Candidates[0].Damage-want) > 1e-12 || x.Candidates[1].Damage != 0 {
			t.Errorf("%s: %+v, want %g and 0", a.Path, x.Candidates, want)
		}
	}
}

func TestForeignSign(t *testing.T) {
	m := openModel(t, "tiny-gemma3-target")
	file := func(v string) []byte {
		var b strings.Builder
		b.WriteString(`{"group_size": 32, "layers": [`)
		for i, w := range m.Weights {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"layer_name": %q, "sensitivities": %s, "param_count": 1}`, w.Path, v)
		}
		b.WriteString("]}")
		return []byte(b.String())
	}
	damage := func(m *Map, err error) string {
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(m.Tensors[0].Candidates[0].Damage, m.Tensors[0].Candidates[1].Damage)
	}
	for _, tt := range []struct {
		values string
		sign   Sign
		want   string
	}{
		{`{"4": 0.5, "8": 0.25}`, "", "0.5 0.25"},
		{`{"4": 0, "8": 0.25}`, "", "0.25 0"},
		{`{"4": 0.5, "8": 0.75}`, "", "unclear whether"},
		{`{"4": 0.5, "8": 0.75}`, SignGain, "0.25 0"},
		{`{"4": 0.5, "8": 0.75}`, SignDamage, "0.5 0.75"},
		{`{"4": -0.5, "8": 0.75}`, SignDamage, "is negative"},
		{`{"4": -0.5, "8": 0.75}`, "", "unclear whether"},
	} {
		if got := damage(Import(m, file(tt.values), ImportOptions{Sign: tt.sign})); !strings.Contains(got, tt.want) {
			t.Errorf("%s as %q: %s, want %s", tt.values, tt.sign, got, tt.want)
		}
	}
	one := []byte(`[["model.embed_tokens", 0.5]]`)
	if _, err := Import(m, one, ImportOptions{Group: 32}); err == nil || !strings.Contains(err.Error(), "has gaps") {
		t.Errorf("one tensor only: %v", err)
	}
	if x, err := Import(m, one, ImportOptions{Group: 32, KeepMissing: true}); err != nil || len(x.Tensors) != 1 {
		t.Errorf("one tensor only, the rest kept: %v", err)
	}
	if _, err := Import(m, []byte(`[["model.embed_tokens", -0.5]]`), ImportOptions{Group: 32, KeepMissing: true}); err == nil || !strings.Contains(err.Error(), "unclear") {
		t.Errorf("negative figures: %v", err)
	}
	if _, err := Import(m, []byte(`[["model.other", 0.5]]`), ImportOptions{}); err == nil || !strings.Contains(err.Error(), "another model's file") {
		t.Errorf("another model's: %v", err)
	}
	if _, err := Import(m, []byte(`{"a": 1}`), ImportOptions{}); err == nil {
		t.Error("something else")
	}
}

func TestImportMetadata(t *testing.T) {
	r, err := ImportMetadata([]byte(`{"method": "optiq_mixed_precision", "per_layer": {
		"model.layers.0.self_attn.q_proj": {"bits": 8, "group_size": 64}, "model.layers.0.self_attn.k_proj": {"bits": 4, "group_size": 64},
		"model.layers.0.self_attn.v_proj": {"bits": 16, "group_size": 64}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if r.Default.Bits != 8 || len(r.Rules) != 3 || r.Rules[1].Bits != 4 || !r.Rules[2].Keep {
		t.Errorf("%s", r.Marshal())
	}
	if _, err := ImportMetadata([]byte(`{}`)); err == nil {
		t.Error("nothing")
	}
}

// The sum over a recipe is what was measured of it as a whole, and a single
// change costs what it was measured to cost there.
func TestRecenter(t *testing.T) {
	m := openModel(t, "tiny-gemma3-target")
	o := options(m)
	o.Formats = []quant.Format{affine(3, 32), affine(4, 32), affine(8, 32)}
	first, err := Measure(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Base = quant.Uniform(4, 32)
	o.Base.Default.Method = quant.RTN
	around, err := Measure(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Recenter(first, around, o.Base)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := got.Predict(o.Base)
	if err != nil || math.Abs(sum-around.BaseDamage) > 1e-9 {
		t.Errorf("the recipe is predicted to do %g, and does %g: %v", sum, around.BaseDamage, err)
	}
	for i, x := range got.Tensors {
		own, change := x.Candidates[1].Damage, x.Candidates[0].Damage
		if want := around.Tensors[i].Candidates[0].Damage - around.BaseDamage; change > 0 && math.Abs(change-own-want) > 1e-9 {
			t.Errorf("%s: a change costs %g, measured %g", x.Path, change-own, want)
		}
	}
	if _, err := Recenter(first, first, o.Base); err == nil {
		t.Error("a first round is taken for a second")
	}
}
