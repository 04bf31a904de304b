package parity

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
)

// weightsGate compares constants of one name wherever they occur.
func weightsGate() Gate {
	return Gate{
		ID:     "weights",
		Proves: "a weight has the same bytes in all functions and chunks, and the embedding table is the head it is tied to",
		Skip:   func(*Subject) string { return "" },
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			type seen struct {
				at   stored
				id   string
				hash [sha256.Size]byte
			}
			first, hashes, compared := map[string]seen{}, map[string][sha256.Size]byte{}, 0
			err := s.weights(func(w stored) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				id := valueID(w.value)
				sum, ok := hashes[id]
				if !ok {
					var err error
					if sum, err = contentHash(w.value); err != nil {
						return err
					}
					hashes[id] = sum
				}
				a, ok := first[w.op.Name]
				if !ok {
					first[w.op.Name] = seen{w, id, sum}
					return nil
				}
				if t, _ := w.value.Tensor(); t.Rank() == 0 {
					return nil
				}
				compared++
				if a.hash == sum {
					return nil
				}
				here, there := s.Contract.Chunks[w.chunk].Name, s.Contract.Chunks[a.at.chunk].Name
				where := fmt.Sprintf("%s of %s", w.function, here)
				if here == there {
					where = w.function
				}
				res.symptom("functions differ")
				res.fail("%s: %s has another content in %s than in %s", there, w.op.Name, where, a.at.function)
				if res.Finding == nil {
					res.Finding = &Finding{Chunk: here, Function: w.function, Layer: layerOf(w.op.Name), Site: w.op.Name, Position: -1}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			res.note("contents", float64(len(hashes)))
			res.note("compared", float64(compared))
			rows, err := s.tied(res)
			if err != nil {
				return nil, err
			}
			res.note("tied_rows", float64(rows))
			return res, nil
		},
	}
}

// layerOf is the layer in the name of a value, or -1.
func layerOf(name string) int {
	for _, re := range layerInName {
		if m := re.FindStringSubmatch(name); m != nil {
			if l, err := strconv.Atoi(m[1]); err == nil {
				return l
			}
		}
	}
	return -1
}

var layerInName = []*regexp.Regexp{layerValue, regexp.MustCompile(`^model_layers_(\d+)_`)}

// contentHash hashes type and bytes of a constant, or of a constexpr's
// operands.
func contentHash(v *mil.Value) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	var walk func(v *mil.Value) error
	walk = func(v *mil.Value) error {
		if v.Const != nil {
			fmt.Fprint(h, v.Const.Type())
			_, err := v.Const.WriteTo(h)
			return err
		}
		if v.Op == nil {
			return nil
		}
		io.WriteString(h, v.Op.Kind)
		for _, a := range v.Op.Args {
			io.WriteString(h, a.Param)
			for _, x := range a.Values {
				if err := walk(x); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err = walk(v)
	h.Sum(sum[:0])
	return sum, err
}

// tiedRows is how many rows of a large table are compared.
const tiedRows = 512

// tied compares the embedding table beside the chunks with the weights of the
// head, where the model ties them. It returns how many rows it compared.
func (s *Subject) tied(res *Result) (int, error) {
	c := s.Contract
	if s.Config == nil || !s.Config.TiedHead || c.Embedding.Mode != chunking.EmbedSidecar {
		return 0, nil
	}
	pkgs, err := s.packages()
	if err != nil {
		return 0, err
	}
	last := len(pkgs) - 1
	var head *mil.Value
	for _, f := range pkgs[last].Program.Functions {
		for _, o := range f.Body.Ops {
			if w := o.In("weight"); o.Kind == "linear" && w != nil {
				if t, _ := w.Tensor(); t.Rank() == 2 && t.Shape[0] == c.Model.Vocab && t.Shape[1] == c.Model.Hidden {
					head = w
				}
			}
		}
	}
	if head == nil || head.Const == nil {
		return 0, nil // compressed: see gate codes
	}
	rows, err := decoder(head)
	if err != nil {
		return 0, err
	}
	path := filepath.Join(s.Dir, c.Embedding.File)
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	t, ok := f.Tensor(c.Embedding.Tensor)
	V, H := c.Model.Vocab, c.Model.Hidden
	if !ok || rows.NumRows() != V || rows.RowLen() != H || checkpoint.NumElements(t) != V*H {
		return 0, nil // the contract gate speaks of shapes
	}
	fp16 := rows.Type.DType == mil.Float16
	step := max(1, V/tiedRows)
	a, b, n := make([]float32, H), make([]float32, H), 0
	for r := 0; r < V; r += step {
		n++
		rows.Rows(a, r, 1)
		if err := t.ReadFloat32(b, r*H); err != nil {
			return n, err
		}
		for i := range a {
			want := b[i]
			if fp16 {
				want = half.ToF32(half.FromF32(want))
			}
			if a[i] != want {
				res.symptom("table is not the head")
				res.fail("%s: row %d of %s differs from the head's weights in element %d: %g, the head has %g (the table of another checkpoint, or rows in another order?)",
					c.Chunks[last].Name, r, c.Embedding.File, i, b[i], a[i])
				if res.Finding == nil {
					res.Finding = &Finding{Chunk: c.Chunks[last].Name, Layer: c.Model.Layers, Site: "logits", Position: -1}
				}
				return n, nil
			}
		}
	}
	return n, nil
}
