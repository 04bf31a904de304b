package mil

import (
	"strings"
	"testing"
)

func TestBuilderThin(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	x := b.Input("x", T(Float16, 2, 3))
	y := b.Op("mul", "layers.3.scaled", Args{"x": x, "y": 2})
	z := b.Op("add", "layers.3.attn_out", Args{"x": y, "y": 2.0})
	b.Output("out", z)
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range f.Body.Ops {
		got = append(got, o.Kind+" "+o.Name)
	}
	want := "const layers_3_scaled_y_0, mul layers_3_scaled, add out"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("ops: %s\nwant: %s", s, want)
	}
}
