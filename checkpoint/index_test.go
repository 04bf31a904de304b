package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeTree puts files into a new directory. A content that starts with
// "tensors:" becomes a safetensors file with those one-element U8 tensors.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if names, ok := strings.CutPrefix(content, "tensors:"); ok {
			var list []Tensor
			for n := range strings.FieldsSeq(names) {
				x, err := NewRaw(n, U8, []int{1}, []byte{byte(len(list))})
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, x)
			}
			if err := WriteFile(path, list, nil); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpenRejected(t *testing.T) {
	const s1, s2, idx = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"
	good := `{"metadata":{"total_size":3},"weight_map":{"a":"` + s1 + `","b":"` + s1 + `","c":"` + s2 + `"}}`
	indexed := func(index string) map[string]string {
		return map[string]string{s1: "tensors:a b", s2: "tensors:c", idx: index}
	}
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"empty directory", nil, "neither model.safetensors nor model.safetensors.index.json is there"},
		{"pytorch only", map[string]string{"pytorch_model.bin": "x"}, "pytorch_model.bin (convert it to safetensors first)"},
		{"shards without index", map[string]string{s1: "tensors:a"}, "add the index"},
		{"shard missing", map[string]string{s1: "tensors:a b", idx: good}, s2 + ": shard is missing, but " + idx + " lists it (incomplete download?)"},
		{"tensor in the wrong shard", map[string]string{s1: "tensors:a", s2: "tensors:b c", idx: good}, `tensor "b" is in ` + s2 + ", but the index puts it in " + s1},
		{"tensor missing", map[string]string{s1: "tensors:a", s2: "tensors:c", idx: good}, s1 + `: tensor "b" is missing`},
		{"tensor not in the index", map[string]string{s1: "tensors:a b", s2: "tensors:c d", idx: good}, `tensor "d" is not in the index`},
		{"tensor in two shards", map[string]string{s1: "tensors:a b", s2: "tensors:b c", idx: good}, `tensor "b" is in ` + s1 + ", too"},
		{"shard cut", map[string]string{s1: "tensors:a b", s2: "short", idx: good}, s2 + ": file has 5 bytes"},
		{"two checkpoints", map[string]string{"model.safetensors": "tensors:a", s1: "tensors:a b", s2: "tensors:c", idx: good}, "index of other files"},
		{"parent directory", indexed(`{"weight_map":{"a":"../x.safetensors"}}`), "plain name"},
		{"absolute path", indexed(`{"weight_map":{"a":"/etc/x.safetensors"}}`), "plain name"},
		{"backslashes", indexed(`{"weight_map":{"a":"..\\x.safetensors"}}`), "plain name"},
		{"drive", indexed(`{"weight_map":{"a":"C:x.safetensors"}}`), "plain name"},
		{"other suffix", indexed(`{"weight_map":{"a":"config.json"}}`), "does not end in .safetensors"},
		{"hidden", indexed(`{"weight_map":{"a":"..safetensors"}}`), "starts with a dot"},
		{"no file name", indexed(`{"weight_map":{"a":3}}`), "no file name"},
		{"no weight_map", indexed(`{"metadata":{}}`), "weight_map is missing"},
		{"weight_map null", indexed(`{"weight_map":null}`), "'{' should be"},
		{"duplicate tensor", indexed(`{"weight_map":{"a":"` + s1 + `","a":"` + s2 + `"}}`), `duplicate key "a"`},
		{"duplicate weight_map", indexed(`{"weight_map":{},"weight_map":{}}`), "duplicate key"},
		{"invalid UTF-8", indexed("{\"weight_map\":{\"\xff\":\"" + s1 + "\"}}"), "not valid UTF-8"},
		{"cut index", indexed(good[:40]), idx + ": JSON ends"},
		{"bad metadata", indexed(`{"metadata":{"total_size":},"weight_map":{}}`), "bad JSON value"},
		{"empty index", indexed(""), "JSON ends"},
		{"text after the index", indexed(good + "x"), "extra characters"},
		{"index of nothing", indexed(`{"weight_map":{"z":"` + s1 + `"}}`), `tensor "z" is missing`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Open(writeTree(t, tc.files))
			if err == nil {
				c.Close()
				t.Fatalf("accepted, want an error with %q", tc.want)
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "checkpoint: ") {
				t.Fatalf("error %q, want %q", err, tc.want)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("an absent path is accepted")
	}
	if _, err := OpenFile(t.TempDir()); err == nil {
		t.Error("a directory is accepted as a file")
	}
}

func TestOpenLayouts(t *testing.T) {
	const idx = "model.safetensors.index.json"
	sharded := map[string]string{
		"x-1.safetensors": "tensors:b a", "x-2.safetensors": "tensors:c",
		idx: `{"weight_map":{"a":"x-1.safetensors","b":"x-1.safetensors","c":"x-2.safetensors"},"other":[1,{"k":null}]}`,
	}
	for _, tc := range []struct {
		name  string
		files map[string]string
		open  string
		count int
	}{
		{"single", map[string]string{"model.safetensors": "tensors:c a b"}, "", 1},
		{"single with its index", map[string]string{"model.safetensors": "tensors:c a b", idx: `{"weight_map":{"a":"model.safetensors","b":"model.safetensors","c":"model.safetensors"}}`}, "", 1},
		{"shards", sharded, "", 2},
		{"index by name", sharded, idx, 2},
		{"file by name", map[string]string{"golden.safetensors": "tensors:c a b"}, "golden.safetensors", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Open(filepath.Join(writeTree(t, tc.files), tc.open))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got := strings.Join(c.Names(), " "); got != "a b c" {
				t.Errorf("names %q", got)
			}
			if len(c.Files()) != tc.count {
				t.Errorf("files %v, want %d", c.Files(), tc.count)
			}
			for _, name := range c.Names() {
				x, ok := c.Tensor(name)
				if !ok {
					t.Fatalf("%s: not found", name)
				}
				if _, err := ReadInts(x); err != nil || x.Name() != name {
					t.Errorf("%s: read as %s, error %v", name, x.Name(), err)
				}
			}
			if _, ok := c.Tensor("d"); ok {
				t.Error("an absent tensor is found")
			}
		})
	}
}

func TestOpenThroughSymlink(t *testing.T) {
	// Download caches keep blobs elsewhere and link to them.
	blobs := writeTree(t, map[string]string{"blob.safetensors": "tensors:a"})
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(blobs, "blob.safetensors"), filepath.Join(dir, "model.safetensors")); err != nil {
		t.Skip(err)
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
