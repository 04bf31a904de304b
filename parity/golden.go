package parity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
)

// ReadGolden reads a recording in safetensors form. Two forms are known:
//
//	full     input_ids [T], logits [T,V], and where present hidden.0 … hidden.L,
//	         hidden.norm [T,H]; argmax [T] and top1_margin [T] override what
//	         logits stored in fp16 say
//	compact  input_ids [T], argmax [T], top5_ids [T,5], top5_logits [T,5],
//	         lse [T], positions [n], logits [n,V]: the rows at these positions
//
// hidden.0 is the scaled embedding, hidden.i the residual stream after layer
// i-1, hidden.norm the output of the final norm. A file of the same name that
// ends in .json beside it may give noise.fp16_compute_vs_fp32.max_abs_dlogit.
func ReadGolden(path string) (*Recording, error) {
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("parity: golden: %w", err)
	}
	defer f.Close()
	g := golden{f: f, name: filepath.Base(path)}
	rec := &Recording{Source: path, Noise: nan, Hidden: map[string]Rows{}}
	for _, id := range g.ints("input_ids", 1) {
		rec.IDs = append(rec.IDs, int32(id))
	}
	if g.has("top5_ids") {
		g.compact(rec)
	} else {
		g.full(rec)
	}
	if g.err != nil {
		return nil, fmt.Errorf("parity: golden: %w", g.err)
	}
	if rec.Noise, err = readNoise(strings.TrimSuffix(path, filepath.Ext(path)) + ".json"); err != nil {
		return nil, err
	}
	return rec, rec.check()
}

// golden reads tensors; the first error stays.
type golden struct {
	f    *checkpoint.File
	name string
	err  error
}

func (g *golden) has(name string) bool {
	_, ok := g.f.Tensor(name)
	return ok
}

func (g *golden) tensor(name string, rank int) checkpoint.Tensor {
	if g.err != nil {
		return nil
	}
	t, ok := g.f.Tensor(name)
	if !ok {
		g.err = fmt.Errorf("%s has no tensor %q (is it a recording of interop/record_pt.py?)", g.name, name)
		return nil
	}
	if s := t.Shape(); len(s) != rank {
		g.err = fmt.Errorf("%s: tensor %q has shape %v, want %d dimensions", g.name, name, s, rank)
		return nil
	}
	return t
}

func (g *golden) ints(name string, rank int) []int64 {
	t := g.tensor(name, rank)
	if t == nil {
		return nil
	}
	v, err := checkpoint.ReadInts(t)
	if err != nil {
		g.err = err
	}
	return v
}

func (g *golden) floats(name string, rank int) ([]float32, []int) {
	t := g.tensor(name, rank)
	if t == nil {
		return nil, nil
	}
	v, err := checkpoint.ReadAll(t)
	if err != nil {
		g.err = err
	}
	return v, t.Shape()
}

// full reads logits of all positions.
func (g *golden) full(rec *Recording) {
	data, shape := g.floats("logits", 2)
	if g.err != nil {
		return
	}
	T := len(rec.IDs)
	if shape[0] != T || shape[1] == 0 {
		g.err = fmt.Errorf("%s: logits have shape %v for %d input_ids", g.name, shape, T)
		return
	}
	rec.Vocab = shape[1]
	rec.MaxAbs = maxAbs(data)
	g.resolution(rec)
	for t := range T {
		row := data[t*rec.Vocab : (t+1)*rec.Vocab]
		p := positionOf(row, false)
		p.Row = row
		rec.Positions = append(rec.Positions, p)
	}
	if g.has("argmax") {
		for t, id := range g.ints("argmax", 1) {
			if t < T {
				rec.Positions[t].Argmax = int32(id)
			}
		}
	}
	if g.has("top1_margin") {
		m, _ := g.floats("top1_margin", 1)
		for t, v := range m {
			if t < T {
				rec.Positions[t].margin = float64(v)
			}
		}
	}
	g.hidden(rec)
}

// resolution notes how coarsely logits are stored.
func (g *golden) resolution(rec *Recording) {
	if t, ok := g.f.Tensor("logits"); ok {
		switch t.DType() {
		case checkpoint.F16:
			rec.Resolution = rec.MaxAbs / 2048
		case checkpoint.BF16:
			rec.Resolution = rec.MaxAbs / 256
		}
	}
}

// hidden reads residual streams under the names of the sites.
func (g *golden) hidden(rec *Recording) {
	for _, name := range g.f.Names() {
		rest, ok := strings.CutPrefix(name, "hidden.")
		if !ok || g.err != nil {
			continue
		}
		site := ""
		var layer int
		switch n, _ := fmt.Sscanf(rest, "%d", &layer); {
		case rest == "norm":
			site = "final_norm"
		case rest == "0":
			site = "embed"
		case n == 1 && rest == fmt.Sprint(layer) && layer > 0:
			site = fmt.Sprintf("layers.%d.out", layer-1)
		default:
			continue
		}
		data, shape := g.floats(name, 2)
		if g.err != nil {
			return
		}
		if shape[0] != len(rec.IDs) {
			g.err = fmt.Errorf("%s: tensor %q has shape %v for %d input_ids", g.name, name, shape, len(rec.IDs))
			return
		}
		rows := Rows{}
		for t := range shape[0] {
			rows[t] = data[t*shape[1] : (t+1)*shape[1]]
		}
		rec.Hidden[site] = rows
	}
}

// compact reads the best tokens of all positions and a few rows.
func (g *golden) compact(rec *Recording) {
	T := len(rec.IDs)
	argmax, ids := g.ints("argmax", 1), g.ints("top5_ids", 2)
	top, shape := g.floats("top5_logits", 2)
	lse, _ := g.floats("lse", 1)
	positions := g.ints("positions", 1)
	rows, rowShape := g.floats("logits", 2)
	if g.err != nil {
		return
	}
	k := shape[1]
	if len(argmax) != T || len(lse) != T || shape[0] != T || len(ids) != len(top) || k == 0 || rowShape[0] != len(positions) {
		g.err = fmt.Errorf("%s: argmax, top5_ids, top5_logits, lse, positions and logits do not fit %d input_ids", g.name, T)
		return
	}
	rec.Vocab = rowShape[1]
	rec.MaxAbs = math.Max(maxAbs(rows), maxAbs(top))
	g.resolution(rec)
	for t := range T {
		p := Position{Argmax: int32(argmax[t]), LSE: float64(lse[t]), margin: nan}
		for i := range k {
			id := ids[t*k+i]
			if id < 0 || int(id) >= rec.Vocab {
				g.err = fmt.Errorf("%s: top5_ids[%d,%d] is %d, outside the vocabulary of %d", g.name, t, i, id, rec.Vocab)
				return
			}
			p.Top = append(p.Top, Scored{int32(id), top[t*k+i]})
		}
		rec.Positions = append(rec.Positions, p)
	}
	for i, t := range positions {
		if t < 0 || int(t) >= T {
			g.err = fmt.Errorf("%s: positions[%d] is %d, outside the %d tokens", g.name, i, t, T)
			return
		}
		rec.Positions[t].Row = rows[i*rec.Vocab : (i+1)*rec.Vocab]
	}
}

// readNoise reads the noise of fp16 compute from the notes of a recording;
// NaN if there are none.
func readNoise(path string) (float64, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nan, nil
	}
	if err != nil {
		return nan, fmt.Errorf("parity: golden: %w", err)
	}
	var notes struct {
		Noise struct {
			FP16 struct {
				MaxAbs *float64 `json:"max_abs_dlogit"`
			} `json:"fp16_compute_vs_fp32"`
		} `json:"noise"`
	}
	if err := json.Unmarshal(data, &notes); err != nil {
		return nan, fmt.Errorf("parity: golden: %s: %w", filepath.Base(path), err)
	}
	if v := notes.Noise.FP16.MaxAbs; v != nil {
		if *v < 0 {
			return nan, fmt.Errorf("parity: golden: %s: noise %g is negative", filepath.Base(path), *v)
		}
		return *v, nil
	}
	return nan, nil
}
