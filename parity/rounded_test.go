package parity

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
)

// TestWeightsBeyondFP16 converts a checkpoint whose weights have more digits
// than fp16: that the packages round them is no fault of the conversion.
func TestWeightsBeyondFP16(t *testing.T) {
	from, err := fixtures.Dir("llama-tied")
	if err != nil {
		t.Fatal(err)
	}
	src := t.TempDir()
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	ckpt, err := checkpoint.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer ckpt.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	var fine []checkpoint.Tensor
	for _, name := range ckpt.Names() {
		w, _ := ckpt.Tensor(name)
		v, err := checkpoint.ReadAll(w)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v {
			v[i] *= 1 + rng.Float32()/256 // half a unit of bf16
		}
		fine = append(fine, checkpoint.NewFloat32(name, w.Shape(), v))
	}
	if err := checkpoint.WriteFile(filepath.Join(src, "model.safetensors"), fine, nil); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	if _, err := conversion.Convert(context.Background(), src, bundle, conversion.Options{Context: 48}); err != nil {
		t.Fatal(err)
	}
	rep, err := Verify(context.Background(), bundle, Options{Checkpoint: src})
	if err != nil {
		t.Fatal(err)
	}
	if !rep.Pass {
		t.Errorf("failed: %v", rep.Failed())
	}
}

// TestTokenHeadTies compares token heads, which do not tell the second best:
// another token is noise if both lead with the same logit.
func TestTokenHeadTies(t *testing.T) {
	position := func(margin float64) Position {
		return Position{Argmax: 7, Top: []Scored{{7, 3}}, margin: margin}
	}
	for _, c := range []struct {
		name   string
		margin float64
		token  int32
		logit  float32
		flips  int
	}{
		{"the same", nan, 7, 3, 0},
		{"another that leads by as much", nan, 9, 3.05, 0},
		{"another that leads by more", nan, 9, 4, 1},
		{"another, the recording knows of two that are close", 0.05, 9, 3.05, 0},
		{"another, the recording knows of one alone", 2, 9, 3.05, 1},
	} {
		a := &agreement{want: []Position{position(c.margin)}, tol: Tolerance{Margin: 0.1}}
		a.row(c.name, engine.Row{Token: c.token, TokenLogit: c.logit})
		if a.flips != c.flips {
			t.Errorf("%s: %d flips, want %d (%s)", c.name, a.flips, c.flips, a.flipped)
		}
	}
}
