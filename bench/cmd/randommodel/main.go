// Command randommodel writes a checkpoint of random weights in the shapes that
// a config.json implies: a model of any size to measure with.
//
//	randommodel -config bench/gemma4/e2b.json -out DIR [-seed 1]
//
// Weights are bf16 and stream to the disk; equal seeds give equal bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/models"
)

func main() {
	config := flag.String("config", "", "config.json of the model")
	out := flag.String("out", "", "directory to write, which must not exist")
	seed := flag.Uint64("seed", 1, "of the random numbers")
	flag.Parse()
	if err := run(*config, *out, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "randommodel:", err)
		os.Exit(1)
	}
}

func run(config, out string, seed uint64) error {
	data, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	f, err := os.Open(config)
	if err != nil {
		return err
	}
	defer f.Close()
	cfg, err := models.ParseConfig(f)
	if err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	var tensors []checkpoint.Tensor
	for name, shape := range models.Tensors(cfg) {
		tensors = append(tensors, newRandom(name, shape, seed))
	}
	slices.SortFunc(tensors, func(a, b checkpoint.Tensor) int { return compare(a.Name(), b.Name()) })
	if err := os.WriteFile(filepath.Join(out, "config.json"), data, 0o644); err != nil {
		return err
	}
	w, err := os.Create(filepath.Join(out, "model.safetensors"))
	if err != nil {
		return err
	}
	err = checkpoint.Encode(w, tensors, map[string]string{"format": "pt"})
	if e := w.Close(); err == nil {
		err = e
	}
	return err
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
