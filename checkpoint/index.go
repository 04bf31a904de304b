package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// index is a checked model.safetensors.index.json.
type index struct {
	shardOf map[string]string // tensor name → file name
}

// shards returns the file names, sorted.
func (x *index) shards() []string {
	return slices.Compact(slices.Sorted(maps.Values(x.shardOf)))
}

// readIndex reads an index file. The limit is the header's: the index repeats
// what headers hold.
func readIndex(path string) (*index, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHeaderBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxHeaderBytes {
		return nil, fmt.Errorf("index exceeds %d bytes", maxHeaderBytes)
	}
	return parseIndex(text)
}

// parseIndex decodes an index. metadata.total_size is not compared: writers
// disagree on what it counts, and the shards' own headers are exact.
func parseIndex(text []byte) (*index, error) {
	s, err := newScanner(text)
	if err != nil {
		return nil, err
	}
	x := &index{}
	err = s.object(func(key string) error {
		if key != "weight_map" {
			return s.skip()
		}
		x.shardOf = make(map[string]string)
		return s.object(func(name string) error {
			if s.peek() != '"' {
				return s.errorf("weight_map: tensor %q: no file name", name)
			}
			shard, err := s.str()
			if err != nil {
				return err
			}
			if err := checkShardName(shard); err != nil {
				return fmt.Errorf("weight_map: tensor %q: file name %q: %w", name, shard, err)
			}
			x.shardOf[name] = shard
			return nil
		})
	})
	switch {
	case err != nil:
		return nil, err
	case x.shardOf == nil:
		return nil, errors.New("weight_map is missing")
	}
	return x, s.end()
}

// checkShardName keeps an index from reaching outside its directory.
func checkShardName(name string) error {
	switch {
	case strings.ContainsAny(name, "/\\:\x00"):
		return errors.New("must be a plain name in the index's own directory")
	case !strings.HasSuffix(name, ".safetensors"):
		return errors.New("does not end in .safetensors")
	case strings.HasPrefix(name, "."):
		return errors.New("starts with a dot")
	}
	return nil
}

// check compares the index with what the shards hold.
func (x *index) check(files []*File) error {
	holder := make(map[string]string)
	for _, f := range files {
		for _, name := range f.names {
			if other, dup := holder[name]; dup {
				return fmt.Errorf("%s: tensor %q is in %s, too", f.base, name, other)
			}
			holder[name] = f.base
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.shardOf)) {
		want := x.shardOf[name]
		switch got, ok := holder[name]; {
		case !ok:
			return fmt.Errorf("%s: tensor %q is missing, but the index puts it there", want, name)
		case got != want:
			return fmt.Errorf("%s: tensor %q is in %s, but the index puts it in %s", got, name, got, want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(holder)) {
		if _, ok := x.shardOf[name]; !ok {
			return fmt.Errorf("%s: tensor %q is not in the index", holder[name], name)
		}
	}
	return nil
}
