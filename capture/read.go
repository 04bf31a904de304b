package capture

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/drafter"
)

// States are captured states, read back.
type States struct {
	Index
	// SHA256 is that of capture.json, which names the hash of every shard.
	SHA256 string
	dir    string
}

// Open reads capture.json and compares every shard with its hash.
func Open(dir string) (*States, error) {
	data, err := os.ReadFile(filepath.Join(dir, IndexFile))
	if err != nil {
		return nil, fmt.Errorf("capture: %s holds no captured states, or a run that has not ended: %w", dir, err)
	}
	s := &States{dir: dir}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s.Index); err != nil {
		return nil, fmt.Errorf("capture: %s: %s: %w", dir, IndexFile, err)
	}
	if s.Schema != Schema {
		return nil, fmt.Errorf("capture: %s: %s: the schema is %q, want %q", dir, IndexFile, s.Schema, Schema)
	}
	sum := sha256.Sum256(data)
	s.SHA256 = hex.EncodeToString(sum[:])
	for _, f := range s.Shards {
		got, err := hash(filepath.Join(dir, f.File))
		if err != nil {
			return nil, err
		}
		if got != f.SHA256 {
			return nil, fmt.Errorf("capture: %s: %s is not the file that %s names: its hash is %.12s…, not %.12s… (capture again)", dir, f.File, IndexFile, got, f.SHA256)
		}
	}
	return s, nil
}

// Target is what the captured model says of itself.
func (s *States) Target() drafter.Target {
	return drafter.Target{Name: s.dir, Hidden: s.Hidden, Vocab: s.Vocab, Layers: s.Layers, Keys: s.Keys}
}

// Covers is an error unless what a drafter needs was captured.
func (s *States) Covers(n drafter.Needs) error {
	if n.Hidden == 0 {
		n.Hidden = s.Hidden // it reads no states
	}
	t := s.Target()
	if len(n.Keys) > 0 && len(s.Keys) == 0 {
		return fmt.Errorf("capture: the drafter reads keys and values, which %s does not have (capture with --keys %s)", s.dir, strings.Join(kinds(n.Keys), ","))
	}
	if err := n.Fits(t); err != nil {
		return err
	}
	for _, l := range n.Taps {
		if !slices.Contains(s.Taps, l) {
			return fmt.Errorf("capture: the drafter taps layers %v, %s has layers %v (wrong tap layers? capture with --taps %s)", n.Taps, s.dir, s.Taps, list(n.Taps))
		}
	}
	if n.Norm != "" && !slices.Contains(s.Norms, n.Norm) {
		return fmt.Errorf("capture: the drafter reads %s-norm hidden states, %s has %v (capture with --norm %s)", n.Norm, s.dir, s.Norms, n.Norm)
	}
	return nil
}

func kinds(m map[string]drafter.Shape) (out []string) {
	for _, k := range []string{"full", "sliding"} {
		if _, ok := m[k]; ok {
			out = append(out, k)
		}
	}
	return out
}

func list(x []int) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(x), "[]")), ",")
}

// Rows are the sequences with what a drafter needs.
func (s *States) Rows(n drafter.Needs) ([]drafter.Rows, error) {
	if err := s.Covers(n); err != nil {
		return nil, err
	}
	var out []drafter.Rows
	err := s.shards(func(f *checkpoint.File, sequences int) error {
		t, ok := f.Tensor("tokens")
		if !ok {
			return fmt.Errorf("no tokens")
		}
		ids, err := checkpoint.ReadInts(t)
		if err != nil {
			return err
		}
		if len(ids) != sequences*s.Tokens {
			return fmt.Errorf("%d tokens, want %d of %d", len(ids), sequences, s.Tokens)
		}
		rows := make([]drafter.Rows, sequences)
		for i := range rows {
			rows[i].Norm = n.Norm
			for _, id := range ids[i*s.Tokens : (i+1)*s.Tokens] {
				rows[i].Tokens = append(rows[i].Tokens, int32(id))
			}
		}
		read := func(name string, width int, give func(r *drafter.Rows, x []float32)) error {
			x, err := values(f, name, sequences*s.Tokens*width)
			if err != nil {
				return err
			}
			for i := range rows {
				give(&rows[i], x[i*s.Tokens*width:(i+1)*s.Tokens*width])
			}
			return nil
		}
		for k, l := range n.Taps {
			err := read(fmt.Sprintf("tap.%d", l), s.Hidden, func(r *drafter.Rows, x []float32) {
				if r.Taps == nil {
					r.Taps = make([]float32, s.Tokens*len(n.Taps)*s.Hidden)
				}
				for t := range s.Tokens {
					copy(r.Taps[(t*len(n.Taps)+k)*s.Hidden:][:s.Hidden], x[t*s.Hidden:])
				}
			})
			if err != nil {
				return err
			}
		}
		if n.Norm != "" {
			if err := read("hidden."+n.Norm, s.Hidden, func(r *drafter.Rows, x []float32) { r.Hidden = x }); err != nil {
				return err
			}
		}
		for _, kind := range kinds(n.Keys) {
			w := n.Keys[kind].Heads * n.Keys[kind].HeadDim
			for i := range rows {
				if rows[i].Keys == nil {
					rows[i].Keys, rows[i].Values = map[string][]float32{}, map[string][]float32{}
				}
			}
			err := read("keys."+kind, w, func(r *drafter.Rows, x []float32) { r.Keys[kind] = x })
			if err == nil {
				err = read("values."+kind, w, func(r *drafter.Rows, x []float32) { r.Values[kind] = x })
			}
			if err != nil {
				return err
			}
		}
		out = append(out, rows...)
		return nil
	})
	return out, err
}

// Final are the hidden states after the final norm, [tokens·hidden] of each
// sequence: what the target's head multiplies.
func (s *States) Final() ([][]float32, error) {
	if !slices.Contains(s.Norms, Post) {
		return nil, fmt.Errorf("capture: %s has no post-norm hidden states, from which the target's predictions follow (capture with --norm post)", s.dir)
	}
	var out [][]float32
	err := s.shards(func(f *checkpoint.File, sequences int) error {
		n := s.Tokens * s.Hidden
		x, err := values(f, "hidden.post", sequences*n)
		for i := range sequences {
			if err == nil {
				out = append(out, x[i*n:(i+1)*n])
			}
		}
		return err
	})
	return out, err
}

// values reads a whole tensor of so many elements.
func values(f *checkpoint.File, name string, n int) ([]float32, error) {
	t, ok := f.Tensor(name)
	if !ok {
		return nil, fmt.Errorf("no tensor %s", name)
	}
	if got := checkpoint.NumElements(t); got != n {
		return nil, fmt.Errorf("%s has %d elements, want %d", name, got, n)
	}
	x, err := checkpoint.ReadAll(t)
	if err == nil && slices.ContainsFunc(x, func(v float32) bool { return v-v != 0 }) {
		err = fmt.Errorf("%s has values that are not finite", name)
	}
	return x, err
}

func (s *States) shards(f func(f *checkpoint.File, sequences int) error) error {
	for _, sh := range s.Shards {
		file, err := checkpoint.OpenFile(filepath.Join(s.dir, sh.File))
		if err != nil {
			return err
		}
		err = f(file, sh.Sequences)
		if closed := file.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return fmt.Errorf("capture: %s: %s: %w", s.dir, sh.File, err)
		}
	}
	return nil
}
