package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nlpodyssey/safetensors"
	"pgregory.net/rapid"
)

// TestWriteFileBytes pins the layout on a file small enough to read.
func TestWriteFileBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	err := WriteFile(path, []Tensor{
		NewInt32("b", []int{1}, []int32{1}),
		mustRaw(t, "a\"\\\n\x01é\u2028<", U8, []int{3}, []byte{7, 8, 9}),
		NewFloat32("a", []int{}, []float32{1}),
		NewInt64("z", []int{0, 2}, nil),
	}, map[string]string{"b": "2", "a": "\t"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := `{"__metadata__":{"a":"\t","b":"2"},` +
		`"z":{"dtype":"I64","shape":[0,2],"data_offsets":[0,0]},` +
		`"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},` +
		`"b":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},` +
		`"a\"\\\n\u0001é` + "\u2028" + `<":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}`
	for len(head)%8 != 0 {
		head += " "
	}
	want := append(image(head, 0), 0, 0, 0x80, 0x3f, 1, 0, 0, 0, 7, 8, 9)
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Fatal(d)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if d := cmp.Diff(map[string]string{"b": "2", "a": "\t"}, f.Metadata()); d != "" {
		t.Error(d)
	}
}

// otherDTypes are the types the other implementation knows, too.
var otherDTypes = []DType{Bool, U8, I8, I16, U16, F16, BF16, I32, U32, F32, F64, I64, U64}

// dataOf returns what follows a file's header.
func dataOf(file []byte) []byte { return file[8+binary.LittleEndian.Uint64(file):] }

// TestAgainstNLPOdyssey writes random files with both writers, compares their
// data sections (the other header is in name order), and reads with both.
func TestAgainstNLPOdyssey(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		views := make(map[string]safetensors.TensorView)
		var tensors []Tensor
		for i := range rapid.IntRange(0, 12).Draw(rt, "tensors") {
			dt := rapid.SampledFrom(otherDTypes).Draw(rt, "dtype")
			shape := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 3).Draw(rt, "shape")
			n, err := byteSize(dt, shape)
			if err != nil {
				rt.Fatal(err)
			}
			data := rapid.SliceOfN(rapid.Byte(), int(n), int(n)).Draw(rt, "data")
			name := rapid.StringMatching(`[a-c.é"\\]{0,3}`).Draw(rt, "name") + fmt.Sprint(i)
			other, err := safetensors.ParseDType(dt.String())
			if err != nil {
				rt.Fatal(err)
			}
			dims := make([]uint64, len(shape))
			for i, d := range shape {
				dims[i] = uint64(d)
			}
			if views[name], err = safetensors.NewTensorView(other, dims, data); err != nil {
				rt.Fatal(err)
			}
			tensors = append(tensors, mustRaw(t, name, dt, shape, data))
		}
		var metadata map[string]string
		if rapid.Bool().Draw(rt, "metadata") {
			metadata = map[string]string{"format": "pt", "é": "ü"}
		}
		path := filepath.Join(dir, "x.safetensors")
		if err := WriteFile(path, tensors, metadata); err != nil {
			rt.Fatal(err)
		}
		ours, err := os.ReadFile(path)
		if err != nil {
			rt.Fatal(err)
		}
		theirs, err := safetensors.Serialize(views, metadata)
		if err != nil {
			rt.Fatal(err)
		}
		if !bytes.Equal(dataOf(ours), dataOf(theirs)) {
			rt.Fatalf("writers lay data out differently:\n%q\n%q", ours, theirs)
		}
		parsed, err := safetensors.Deserialize(ours)
		if err != nil {
			rt.Fatal(err)
		}
		f, err := OpenFile(path)
		if err != nil {
			rt.Fatal(err)
		}
		defer f.Close()
		if len(f.Names()) != parsed.Len() {
			rt.Fatalf("%d tensors, theirs %d", len(f.Names()), parsed.Len())
		}
		for _, name := range f.Names() {
			v, ok := parsed.Tensor(name)
			b, err := ReadBytes(get(t, f, name))
			if !ok || err != nil || !bytes.Equal(b, v.Data()) {
				rt.Fatalf("tensor %q: readers differ (error %v)", name, err)
			}
		}
	})
}

func TestWriteFileRejected(t *testing.T) {
	x := func(name string) Tensor { return NewFloat32(name, []int{1}, []float32{1}) }
	many := make([]int, 65)
	for _, tc := range []struct {
		name     string
		tensors  []Tensor
		metadata map[string]string
		want     string
	}{
		{"name twice", []Tensor{x("a"), x("b"), x("a")}, nil, `tensor "a" is given twice`},
		{"name twice, two types", []Tensor{x("a"), NewInt32("a", []int{1}, []int32{1})}, nil, `tensor "a" is given twice`},
		{"reserved name", []Tensor{x("__metadata__")}, nil, "reserved"},
		{"invalid name", []Tensor{x("\xff")}, nil, "not valid UTF-8"},
		{"invalid metadata", nil, map[string]string{"a": "\xff"}, "not valid UTF-8"},
		{"rank", []Tensor{NewFloat32("a", many, nil)}, nil, "more than 64 dimensions"},
		{"half a byte", []Tensor{liar{x("a"), F4, 0}}, nil, "whole bytes"},
		{"too few bytes", []Tensor{liar{x("a"), F32, 3}}, nil, `tensor "a": wrote 3 bytes, F32 [1] has 4`},
		{"too many bytes", []Tensor{liar{x("a"), F32, 5}}, nil, "wrote 5 bytes"},
		{"header over the limit", []Tensor{x(strings.Repeat("n", maxHeaderBytes))}, nil, "exceeds the format's limit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x.safetensors")
			if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
				t.Fatal(err)
			}
			err := WriteFile(path, tc.tensors, tc.metadata)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if got, err := os.ReadFile(path); string(got) != "old" {
				t.Errorf("the old file became %q (error %v)", got, err)
			}
			if left := list(t, dir); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// liar claims a type and writes n zero bytes.
type liar struct {
	Tensor
	dtype DType
	n     int
}

func (l liar) DType() DType { return l.dtype }
func (l liar) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(make([]byte, l.n))
	return int64(n), err
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteFileReplacesItsSource(t *testing.T) {
	f := throughFile(t, NewFloat32("x", []int{2}, []float32{1, 2}), NewFloat32("y", []int{1}, []float32{3}))
	err := WriteFile(f.Path(), []Tensor{AsType(get(t, f, "x"), BF16), Rename(get(t, f, "y"), "w")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenFile(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	x, err := ReadAll(get(t, again, "x"))
	if err != nil || !slices.Equal(x, []float32{1, 2}) {
		t.Errorf("x = %v, error %v", x, err)
	}
	if w, err := ReadAll(get(t, again, "w")); err != nil || !slices.Equal(w, []float32{3}) {
		t.Errorf("w = %v, error %v", w, err)
	}
}

func TestStalePartialsAreCleared(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	live, err := newPartial(path)
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(dir, ".model.safetensors.DEAD"+partialSuffix)
	others := filepath.Join(dir, ".other.safetensors.DEAD"+partialSuffix)
	for _, p := range []string{dead, others} {
		if err := os.WriteFile(p, []byte("half"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFile(path, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead writer's file is still there (%v)", err)
	}
	for _, p := range []string{others, live.f.Name()} {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
	live.discard()
}

func TestWriteSharded(t *testing.T) {
	const idx = "model.safetensors.index.json"
	var tensors []Tensor
	for i, n := range []int{10, 20, 100, 5, 5, 5} { // bytes ×4
		tensors = append(tensors, NewFloat32(fmt.Sprintf("t%d", i), []int{n}, make([]float32, n)))
	}
	metadata := map[string]string{"format": "pt"}
	dir := filepath.Join(t.TempDir(), "new", "model")
	if err := WriteSharded(dir, tensors, metadata, 120); err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]string)
	for _, f := range c.files {
		got[f.base] = f.Names()
		if d := cmp.Diff(metadata, f.Metadata()); d != "" {
			t.Errorf("%s: %s", f.base, d)
		}
	}
	c.Close()
	want := map[string][]string{
		"model-00001-of-00003.safetensors": {"t0", "t1"},
		"model-00002-of-00003.safetensors": {"t2"},
		"model-00003-of-00003.safetensors": {"t3", "t4", "t5"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	index, err := os.ReadFile(filepath.Join(dir, idx))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(index), "{\n  \"metadata\": {\n    \"total_size\": 580\n  },\n  \"weight_map\": {\n    \"t0\": \"model-00001-of-00003.safetensors\",\n") {
		t.Errorf("index:\n%s", index)
	}

	// Fewer shards, then one file: nothing of the earlier checkpoint stays.
	stranger := filepath.Join(dir, "adapter_model.safetensors")
	if err := os.WriteFile(stranger, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		limit int64
		want  []string
	}{
		{400, []string{"adapter_model.safetensors", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", idx}},
		{520, []string{"adapter_model.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", idx}},
		{0, []string{"adapter_model.safetensors", "model.safetensors"}},
		{580, []string{"adapter_model.safetensors", "model.safetensors"}},
		{520, []string{"adapter_model.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", idx}},
	} {
		if err := WriteSharded(dir, tensors, metadata, step.limit); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(step.want, list(t, dir)); d != "" {
			t.Errorf("limit %d: %s", step.limit, d)
		}
		c, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Names()) != len(tensors) {
			t.Errorf("limit %d: %v", step.limit, c.Names())
		}
		c.Close()
	}
}

func TestWriteShardedFailure(t *testing.T) {
	dir := t.TempDir()
	good := []Tensor{NewFloat32("a", []int{1}, []float32{1}), NewFloat32("b", []int{1}, []float32{2})}
	if err := WriteSharded(dir, good, nil, 4); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	for name, bad := range map[string][]Tensor{
		"late tensor fails": {NewFloat32("a", []int{2}, []float32{1, 2}), liar{good[1], F32, 1}},
		"name twice":        {good[0], good[1], good[0]},
	} {
		if err := WriteSharded(dir, bad, nil, 4); err == nil {
			t.Errorf("%s: no error", name)
		}
		if d := cmp.Diff(before, snapshot(t, dir)); d != "" {
			t.Errorf("%s: the old checkpoint changed: %s", name, d)
		}
		fresh := filepath.Join(t.TempDir(), "new")
		if err := WriteSharded(fresh, bad, nil, 4); err == nil {
			t.Errorf("%s: no error in a new directory", name)
		}
		if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a new directory stays behind (%v)", name, err)
		}
	}
}

func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := make(map[string]string)
	for _, name := range list(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		m[name] = string(b)
	}
	return m
}

// TestWriteSameBytes writes one checkpoint from tensors in different orders.
func TestWriteSameBytes(t *testing.T) {
	tensors := map[string]Tensor{}
	for i := range 40 {
		name := fmt.Sprint("t", i)
		tensors[name] = AsType(NewFloat32(name, []int{3}, []float32{float32(i), 0.1, -3}), []DType{F16, BF16, F32}[i%3])
	}
	var first []byte
	for range 3 {
		path := filepath.Join(t.TempDir(), "x")
		if err := WriteFile(path, slices.Collect(maps.Values(tensors)), nil); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		} else if !bytes.Equal(first, b) {
			t.Fatal("bytes depend on the order tensors are given in")
		}
	}
}

func TestCastStreams(t *testing.T) {
	// Of 256 MiB of F64 zeros cast to F16, only buffers are in memory.
	const n = 1 << 25
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := AsType(zeros(n), F16).WriteTo(io.Discard)
	runtime.ReadMemStats(&after)
	if err != nil || m != 2*n {
		t.Fatalf("wrote %d bytes, error %v", m, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
		t.Errorf("casting allocates %d bytes", got)
	}
}

// zeros is a lazy tensor of that many F64 zeros.
type zeros int

func (z zeros) Name() string                           { return "zeros" }
func (z zeros) DType() DType                           { return F64 }
func (z zeros) Shape() []int                           { return []int{int(z)} }
func (z zeros) ReadFloat32(dst []float32, _ int) error { clear(dst); return nil }
func (z zeros) WriteTo(io.Writer) (int64, error)       { return 0, errors.New("not needed") }

func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		dtype DType
		shape []int
		n     int
		bytes int64
	}{
		{F32, nil, 1, 4},
		{F4, []int{3, 2}, 6, 3},
		{C64, []int{2, 0}, 0, 0},
		{F6E3M2, []int{4}, 4, 3},
		{F64, []int{1 << 20, 1 << 20}, 1 << 40, 1 << 43},
	} {
		x := newMemory("x", tc.dtype, tc.shape, nil)
		if NumElements(x) != tc.n || NumBytes(x) != tc.bytes {
			t.Errorf("%v %v: %d elements, %d bytes", tc.dtype, tc.shape, NumElements(x), NumBytes(x))
		}
	}
}
