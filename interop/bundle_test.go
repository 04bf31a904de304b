package interop

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/runtime"
)

// form is a way to convert a fixture.
type form struct {
	name string
	opts conversion.Options
}

// layerwise asks for a chunk a layer.
const layerwise = -1

var forms = []form{
	{"tensor", conversion.Options{Chunks: 2}},
	{"layerwise", conversion.Options{Chunks: layerwise}},
	{"state", conversion.Options{Chunks: 2, KV: chunking.KVState}},
	{"graph", conversion.Options{Chunks: 1, Embed: chunking.EmbedGraph, Head: chunking.Head{Token: true, Hidden: "post"}}},
	{"scaled", conversion.Options{Chunks: 3, ResidualScale: 0.125, Head: chunking.Head{Logits: true, Hidden: "pre"}}},
	{"fp32", conversion.Options{Chunks: 2, Compute: "fp32"}},
	{"decode", conversion.Options{Chunks: 1, Context: 48, Functions: []chunking.FunctionSpec{{Kind: chunking.Decode, T: 1}}}},
}

// TestBundles converts every fixture in every form, has coremltools load and
// check all packages, and has the independent evaluator repeat what our
// runtime computed, call by call.
//
// Both sides round every op to fp16, but sum products in different orders, so
// now and then an element rounds the other way and what follows carries it on;
// norms of small rows magnify it. Of the elements of a layer's outputs 99.5 %
// must agree within 2 units in the last place of the row's largest element and
// all within 6; deeper chunks get that much a layer.
func TestBundles(t *testing.T) { bundles(t, fixtures.Names(), forms, 1) }

// TestSharingBundles does the same with models of which layers share keys and
// values, in several topologies and forms of cache. They norm four times a
// layer, and the norms' small rows magnify what rounds the other way: twice
// as many elements may be beyond 2 units, and none beyond 6 a layer.
func TestSharingBundles(t *testing.T) {
	head := chunking.Head{Token: true, Logits: true, Hidden: "post", TopK: 3}
	bundles(t, []string{"gemma4-e2b", "gemma4-e4b"}, []form{
		{"tensor", conversion.Options{Topology: chunking.Topology4}},
		{"state", conversion.Options{Topology: chunking.Topology3, KV: chunking.KVState}},
		{"app", conversion.Options{Topology: chunking.Topology3, KV: chunking.KVCoreMLLLM, Head: head}},
		{"app4", conversion.Options{Topology: chunking.Topology4, KV: chunking.KVCoreMLLLM, Compute: "fp32"}},
	}, 2)
}

func bundles(t *testing.T, names []string, forms []form, slack float64) {
	python(t)
	for _, name := range names {
		dir, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range forms {
			t.Run(name+"/"+f.name, func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "bundle")
				o := f.opts
				if o.Chunks == layerwise {
					o.Chunks = layers(t, dir)
				}
				if _, err := conversion.Convert(context.Background(), dir, out, o); err != nil {
					t.Fatal(err)
				}
				e, err := engine.Open(out, engine.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				var paths []string
				for _, ch := range e.Contract().Chunks {
					paths = append(paths, filepath.Join(out, ch.File))
				}
				checkPackages(t, paths...)
				j := &jobs{dir: t.TempDir()}
				record(t, e, out, j)
				j.run(t)
				for _, x := range j.all {
					x.compare(t, slack)
				}
			})
		}
	}
}

// call is a recorded call of one chunk.
type call struct {
	fn      string
	in, out map[string]*runtime.Tensor
}

// record drives every function from an empty cache and adds a job for every
// chunk.
func record(t *testing.T, e *engine.Engine, dir string, j *jobs) {
	ids := make([]int32, 12)
	for i := range ids {
		ids[i] = int32(7 + 13*i)
	}
	c := e.Contract()
	for _, f := range c.Chunks[0].Functions {
		calls := map[string][]call{}
		s := e.NewSession()
		s.Trace = func(ch *chunking.Chunk, f *chunking.Function, in, out map[string]*runtime.Tensor) {
			calls[ch.Name] = append(calls[ch.Name], call{f.Name, clone(in), clone(out)})
		}
		var err error
		switch f.Kind {
		case chunking.Decode:
			for _, id := range ids[:5] {
				if _, err = s.Decode(id); err != nil {
					break
				}
			}
		case chunking.Prefill:
			_, err = s.Prefill(ids, func(engine.Row) error { return nil }) // with rows: never step by step
		case chunking.Verify:
			_, err = s.Verify(ids[:f.T])
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		for i := range c.Chunks {
			ch := &c.Chunks[i]
			name := f.Name
			if len(ch.Functions) == 1 {
				name = "main"
			}
			j.add(t, filepath.Join(dir, ch.File), name, ch.Last-ch.First, calls[ch.Name])
		}
	}
}

func clone(m map[string]*runtime.Tensor) map[string]*runtime.Tensor {
	out := map[string]*runtime.Tensor{}
	for k, t := range m {
		out[k] = &runtime.Tensor{DType: t.DType, Shape: append([]int(nil), t.Shape...),
			F: append([]float32(nil), t.F...), I: append([]int32(nil), t.I...)}
	}
	return out
}

func layers(t *testing.T, dir string) int {
	t.Helper()
	s, err := conversion.OpenSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Model.Config().Layers
}
