package mlx_test

import (
	"os"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/mlx"
)

// TestLogitsOfMLX compares what our decoder makes of an MLX directory,
// SMELT_MLX_DIR, with input_ids and logits that mlx-lm has written to the
// safetensors file SMELT_MLX_LOGITS (check_mlx.py --fp32 --out): the same most
// likely token wherever the two best are not close.
func TestLogitsOfMLX(t *testing.T) {
	dir, file := os.Getenv("SMELT_MLX_DIR"), os.Getenv("SMELT_MLX_LOGITS")
	if dir == "" || file == "" {
		t.Skip("SMELT_MLX_DIR or SMELT_MLX_LOGITS is not set")
	}
	f, err := checkpoint.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, _ := f.Tensor("input_ids")
	list, err := checkpoint.ReadInts(x)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	for _, id := range list {
		ids = append(ids, int32(id))
	}
	recorded, ok := f.Tensor("logits")
	if !ok {
		t.Fatal("the file has no logits")
	}
	q, err := mlx.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	d, err := decoder.New(q.Float32(), q.Config())
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Embed(t.Context(), [][]int32{ids}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Layers(t.Context(), s, decoder.Options{}); err != nil {
		t.Fatal(err)
	}
	norm, err := d.Norm(s)
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.NewHead(nil)
	if err != nil {
		t.Fatal(err)
	}
	vocab := d.Config().Vocab
	ours := decoder.NewMatrix(len(ids), vocab)
	if err := h.Logits(t.Context(), norm, func(row, first int, l []float32) error { copy(ours.Row(row)[first:], l); return nil }); err != nil {
		t.Fatal(err)
	}
	want := make([]float32, vocab)
	equal, close := 0, 0
	for i := range ids {
		if err := recorded.ReadFloat32(want, i*vocab); err != nil {
			t.Fatal(err)
		}
		top := slices.Max(want)
		got := slices.Index(ours.Row(i), slices.Max(ours.Row(i)))
		switch {
		case want[got] == top:
			equal++
		case top-want[got] < 0.05:
			close++
		default:
			t.Errorf("position %d: our first token is %g below mlx-lm's", i, top-want[got])
		}
	}
	t.Logf("%d positions: the same first token at %d, one as good at %d", len(ids), equal, close)
}
