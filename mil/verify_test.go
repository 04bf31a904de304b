package mil

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// sample builds a program of two functions that uses most features.
func sample(t *testing.T) *Program {
	t.Helper()
	var fs []*Function
	for _, name := range []string{"main", "prefill"} {
		b := NewBuilder(name, CoreML8)
		x := b.Input("x", T(Float16, 1, 4))
		kv := b.State("kv", T(Float16, 2, 4))
		w := b.Op("constexpr_blockwise_shift_scale", "w", Args{
			"data":  NewInts(Int4, []int{4, 4}, make([]int, 16)...),
			"scale": NewFloats(Float16, []int{4, 1}, 1, 1, 1, 1),
		})
		h := b.Op("linear", "h", Args{"x": x, "weight": w})
		n := b.Op("layer_norm", "n", Args{"x": h, "axes": []int{1}, "gamma": NewFloats(Float16, []int{4}, 1, 1, 1, 1), "epsilon": 1e-5})
		old := b.Op("read_state", "old", Args{"input": kv})
		up := b.Op("slice_update", "up", Args{"x": old, "update": n, "begin": []int{0, 0}, "end": []int{1, 4}})
		b.Op("write_state", "save", Args{"input": kv, "data": up})
		p := b.Op("greater", "p", Args{"x": b.Op("reduce_max", "top", Args{"x": n, "axes": []int{0, 1}}), "y": 0.5})
		c := b.Cond("c", p,
			func() []*Value { return []*Value{b.Op("relu", "then", Args{"x": n})} },
			func() []*Value { return []*Value{b.Op("tanh", "els", Args{"x": n})} })
		b.Output("out", c[0])
		f, err := b.Func()
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	return program(fs...)
}

// find returns the op called name.
func find(f *Function, name string) *Op {
	var op *Op
	f.Body.Walk(func(o *Op) {
		if o.Name == name {
			op = o
		}
	})
	return op
}

func TestVerifySample(t *testing.T) {
	if fs := Check(sample(t), false); len(fs) > 0 {
		t.Errorf("findings in a good program: %v", fs)
	}
}

// TestVerifyFaults breaks the sample in one way at a time. Every rule must
// catch its fault, at the place of the fault.
func TestVerifyFaults(t *testing.T) {
	relu := func(name string, x *Value) *Op {
		o := &Op{Kind: "relu", Name: name}
		o.Set("x", x)
		o.Outputs = []*Value{{Name: name, Type: x.Type, Op: o}}
		return o
	}
	insert := func(f *Function, at int, o *Op) {
		f.Body.Ops = append(f.Body.Ops[:at:at], append([]*Op{o}, f.Body.Ops[at:]...)...)
	}
	constant := func(name string, c Const) *Op {
		o := &Op{Kind: "const", Name: name}
		o.Outputs = []*Value{{Name: name, Type: c.Type(), Op: o, Const: c}}
		return o
	}
	faults := []struct {
		name  string
		rule  string
		where string // part of the printed finding
		loose string // "error" if VerifyLoose rejects it too, "warning" if it only warns
		fault func(p *Program, f *Function)
	}{
		{"no functions", "structure", "no functions", "error", func(p *Program, f *Function) { clear(p.Functions) }},
		{"nil function", "structure", `"main" is nil`, "error", func(p *Program, f *Function) { p.Functions["main"] = nil }},
		{"filed under another name", "structure", "main", "error", func(p *Program, f *Function) { f.Name = "other" }},
		{"no body", "structure", "no body", "error", func(p *Program, f *Function) { f.Body = nil }},
		{"body with inputs", "structure", "no inputs of its own", "error", func(p *Program, f *Function) {
			f.Body.Inputs = []*Value{{Name: "z", Type: T(Float16, 1)}}
		}},
		{"default function", "structure", `"absent"`, "warning", func(p *Program, f *Function) { p.Default = "absent" }},
		{"opsets differ", "opset", "share one", "error", func(p *Program, f *Function) { f.Opset = CoreML9 }},
		{"opset unknown", "opset", "opset 4", "error", func(p *Program, f *Function) { f.Opset = 4 }},
		{"two functions before CoreML8", "opset", "several functions", "error", func(p *Program, f *Function) {
			f.Opset, p.Functions["prefill"].Opset = CoreML7, CoreML7
		}},
		{"function name", "name", "function name", "warning", func(p *Program, f *Function) {
			delete(p.Functions, "main")
			f.Name, p.Default = "a-b", "a-b"
			p.Functions["a-b"] = f
		}},
		{"unknown op", "unknown", `frob "h"`, "error", func(p *Program, f *Function) { find(f, "h").Kind = "frob" }},
		{"op of a later opset", "opset", "needs CoreML8", "error", func(p *Program, f *Function) {
			delete(p.Functions, "prefill")
			f.Opset = CoreML7
		}},
		{"parameter of a later opset", "opset", "validate_indices", "error", func(p *Program, f *Function) {
			delete(p.Functions, "prefill")
			f.Opset = CoreML6
			o := &Op{Kind: "gather", Name: "g"}
			idx := constant("idx", NewInts(Int32, []int{1}, 0))
			o.Set("x", f.Inputs[0])
			o.Set("indices", idx.Out())
			for _, k := range []struct {
				p string
				c Const
			}{{"axis", NewInts(Int32, nil, 0)}, {"batch_dims", NewInts(Int32, nil, 0)}, {"validate_indices", NewBools(nil, false)}} {
				o.Set(k.p, Inline(k.c))
			}
			o.Outputs = []*Value{{Name: "g", Type: T(Float16, 1, 4), Op: o}}
			insert(f, 0, idx)
			insert(f, 1, o)
		}},
		{"unknown parameter", "param", "no such parameter", "error", func(p *Program, f *Function) { find(f, "h").Set("frob", f.Inputs[0]) }},
		{"parameter twice", "param", "bound twice", "error", func(p *Program, f *Function) {
			o := find(f, "h")
			o.Args = append(o.Args, o.Args[0])
		}},
		{"two values", "param", "takes one value, has 2", "error", func(p *Program, f *Function) {
			find(f, "h").Set("x", f.Inputs[0], f.Inputs[0])
		}},
		{"bound to nothing", "param", "bound to nothing", "error", func(p *Program, f *Function) { find(f, "h").Set("x") }},
		{"nil value", "param", "nil value", "error", func(p *Program, f *Function) { find(f, "h").Set("x", nil) }},
		{"required missing", "missing", `linear "h" x`, "error", func(p *Program, f *Function) { find(f, "h").Args = find(f, "h").Args[1:] }},
		{"default not written", "default", `linear "h" bias`, "nothing", func(p *Program, f *Function) { find(f, "h").Args = find(f, "h").Args[:2] }},
		{"const-ness", "const", "axes: ", "error", func(p *Program, f *Function) {
			f.Inputs = append(f.Inputs, &Value{Name: "ax", Type: T(Int32, 1)})
			find(f, "n").Set("axes", f.Inputs[2])
		}},
		{"element type", "dtype", `relu "then" x`, "error", func(p *Program, f *Function) {
			f.Inputs = append(f.Inputs, &Value{Name: "i", Type: T(Int32, 1, 4)})
			find(f, "then").Set("x", f.Inputs[2])
		}},
		{"group", "bind", `layer_norm "n" epsilon`, "warning", func(p *Program, f *Function) {
			find(f, "n").Set("epsilon", Inline(NewFloats(Float32, nil, 1e-5)))
		}},
		{"group of int and float", "bind", `greater "p" y`, "error", func(p *Program, f *Function) {
			find(f, "p").Set("y", Inline(NewInts(Int32, nil, 1)))
		}},
		{"inference fails", "infer", `linear "h"`, "error", func(p *Program, f *Function) {
			f.Inputs[0].Type = T(Float16, 1, 3)
		}},
		{"declared type", "type", "declared tensor<fp16, [1, 5]>", "error", func(p *Program, f *Function) { find(f, "h").Out().Type = T(Float16, 1, 5) }},
		{"number of outputs", "type", "2 outputs, want 1", "error", func(p *Program, f *Function) {
			o := find(f, "h")
			o.Outputs = append(o.Outputs, &Value{Name: "h2", Type: T(Float16, 1, 4), Op: o})
		}},
		{"output of another op", "structure", "point back", "error", func(p *Program, f *Function) { find(f, "h").Out().Op = nil }},
		{"use before definition", "undefined", `layer_norm "n" x`, "error", func(p *Program, f *Function) {
			find(f, "n").Set("x", find(f, "up").Out())
		}},
		{"value of another function", "undefined", `linear "h" x`, "error", func(p *Program, f *Function) {
			find(f, "h").Set("x", p.Functions["prefill"].Inputs[0])
		}},
		{"value of an inner block", "undefined", `relu "late" x`, "error", func(p *Program, f *Function) {
			o := relu("late", find(f, "then").Out())
			f.Body.Ops = append(f.Body.Ops, o)
		}},
		{"block output undefined", "undefined", "nested block's output", "error", func(p *Program, f *Function) {
			find(f, "out").Blocks[0].Outputs[0] = p.Functions["prefill"].Inputs[0]
		}},
		{"number of blocks", "structure", "1 nested blocks, want 2", "error", func(p *Program, f *Function) {
			find(f, "out").Blocks = find(f, "out").Blocks[:1]
		}},
		{"value name twice", "duplicate", "another value has the same name", "error", func(p *Program, f *Function) { find(f, "h").Out().Name = "x" }},
		{"value name in a sibling block", "duplicate", "another block", "warning", func(p *Program, f *Function) { find(f, "els").Out().Name = "then" }},
		{"op name twice", "duplicate", "another op", "warning", func(p *Program, f *Function) { find(f, "h").Name = "n" }},
		{"op twice", "duplicate", "defined twice", "error", func(p *Program, f *Function) { insert(f, len(f.Body.Ops), find(f, "n")) }},
		{"reserved value name", "name", "reserved word", "warning", func(p *Program, f *Function) { find(f, "h").Out().Name = "fp16" }},
		{"illegal value name", "name", `"a.b"`, "warning", func(p *Program, f *Function) { find(f, "h").Out().Name = "a.b" }},
		{"illegal op name", "name", "op name", "warning", func(p *Program, f *Function) { find(f, "h").Name = "0h" }},
		{"no op name", "name", "no name", "warning", func(p *Program, f *Function) { find(f, "h").Name = "" }},
		{"rank 6", "rank", "rank 6", "error", func(p *Program, f *Function) {
			f.Inputs = append(f.Inputs, &Value{Name: "big", Type: T(Float16, 1, 1, 1, 1, 1, 2)})
		}},
		{"rank 6 constant of an ordinary op", "rank", "rank 6", "error", func(p *Program, f *Function) {
			c := constant("big", NewFloats(Float16, []int{1, 1, 1, 1, 1, 1}, 1))
			insert(f, 0, c)
			f.Body.Ops = append(f.Body.Ops, relu("big_relu", c.Out()))
		}},
		{"negative dimension", "type", "negative dimension", "error", func(p *Program, f *Function) {
			f.Inputs = append(f.Inputs, &Value{Name: "neg", Type: T(Float16, -2)})
		}},
		{"state fp32", "state", "must be fp16", "error", func(p *Program, f *Function) { f.Inputs[1].Type = StateType{T(Float32, 2, 4)} }},
		{"state int8", "state", "must be fp16", "warning", func(p *Program, f *Function) {
			f.Inputs = append(f.Inputs, &Value{Name: "s8", Type: StateType{T(Int8, 2)}})
		}},
		{"state without fixed shape", "state", "fixed shape", "error", func(p *Program, f *Function) {
			f.Inputs = append(f.Inputs, &Value{Name: "dyn", Type: StateType{T(Float16, Unknown)}})
		}},
		{"state before CoreML8", "state", "states need CoreML8", "error", func(p *Program, f *Function) {
			delete(p.Functions, "prefill")
			f.Opset = CoreML7
		}},
		{"state of two types", "state", "in another function", "warning", func(p *Program, f *Function) {
			for _, o := range []string{"main", "prefill"} {
				p.Functions[o].Inputs = append(p.Functions[o].Inputs, &Value{Name: "s", Type: StateType{T(Float16, len(o))}})
			}
		}},
		{"state as a tensor", "state", "not the state kv", "error", func(p *Program, f *Function) { find(f, "h").Set("x", f.Inputs[1]) }},
		{"tensor as a state", "state", "takes a state", "error", func(p *Program, f *Function) { find(f, "old").Set("input", f.Inputs[0]) }},
		{"state written with another type", "state", "holds", "error", func(p *Program, f *Function) { find(f, "save").Set("data", find(f, "n").Out()) }},
		{"nil output", "structure", "nil", "error", func(p *Program, f *Function) { f.Body.Outputs[0] = nil }},
		{"nil op output", "structure", "nil", "error", func(p *Program, f *Function) { find(f, "h").Outputs[0] = nil }},
		{"nil block output", "structure", "nil", "error", func(p *Program, f *Function) { find(f, "out").Blocks[0].Outputs[0] = nil }},
		{"nil input", "structure", "nil", "error", func(p *Program, f *Function) { f.Inputs[0] = nil }},
		{"untyped input", "structure", "nil", "error", func(p *Program, f *Function) { f.Inputs[0].Type = nil }},
		{"nil block", "structure", "nil", "error", func(p *Program, f *Function) { find(f, "out").Blocks[0] = nil }},
		{"nil op", "structure", "nil", "error", func(p *Program, f *Function) { f.Body.Ops[0] = nil }},
		{"no outputs", "output", "no outputs", "error", func(p *Program, f *Function) { f.Body.Outputs = nil }},
		{"output undefined", "output", "not defined by the function", "error", func(p *Program, f *Function) {
			f.Body.Outputs = append(f.Body.Outputs, find(f, "then").Out())
		}},
		{"output twice", "output", "twice", "warning", func(p *Program, f *Function) {
			f.Body.Outputs = append(f.Body.Outputs, f.Body.Outputs[0])
		}},
		{"output is an input", "output", "aliases an input", "warning", func(p *Program, f *Function) { f.Body.Outputs[0] = f.Inputs[0] }},
		{"output is a state", "output", "aliases a state", "warning", func(p *Program, f *Function) { f.Body.Outputs[0] = find(f, "old").Out() }},
		{"output is a constant", "output", "aliases a constant", "warning", func(p *Program, f *Function) { f.Body.Outputs[0] = find(f, "w").Out() }},
		{"bool output", "output", "not bool", "warning", func(p *Program, f *Function) { f.Body.Outputs[0] = find(f, "p").Out() }},
		{"bool input", "input", "not bool", "warning", func(p *Program, f *Function) {
			f.Inputs = append(f.Inputs, &Value{Name: "flag", Type: T(Bool, 1)})
		}},
		{"scalar input", "input", "rank 0", "warning", func(p *Program, f *Function) {
			f.Inputs = append(f.Inputs, &Value{Name: "pos", Type: T(Int32)})
		}},
		{"fp16 input in CoreML5", "input", "not fp16", "warning", func(p *Program, f *Function) {
			delete(p.Functions, "prefill")
			f.Opset = CoreML5
		}},
		{"input with a producer", "structure", "producer", "error", func(p *Program, f *Function) { f.Inputs[0].Op = find(f, "h") }},
		{"const with inputs", "param", "const has no inputs", "error", func(p *Program, f *Function) { find(f, "n_axes_0").Set("val", f.Inputs[0]) }},
		{"const without contents", "structure", "no contents", "error", func(p *Program, f *Function) { find(f, "n_axes_0").Out().Const = nil }},
		{"const with two outputs", "structure", "one output, not 2", "error", func(p *Program, f *Function) {
			o := find(f, "n_axes_0")
			o.Outputs = append(o.Outputs, &Value{Name: "second", Type: T(Int32), Op: o})
		}},
		{"const type", "type", "but the constant is", "error", func(p *Program, f *Function) { find(f, "n_gamma_0").Out().Type = T(Float16, 1, 4) }},
		{"const length", "contents", "6 bytes, want 8", "error", func(p *Program, f *Function) {
			find(f, "n_gamma_0").Out().Const = &Literal{T: T(Float16, 4), Data: make([]byte, 6)}
		}},
		{"literal length", "contents", "6 bytes, want 8", "error", func(p *Program, f *Function) {
			find(f, "w").Set("scale", Inline(&Literal{T: T(Float16, 4, 1), Data: make([]byte, 6)}))
		}},
		{"strings", "contents", "hold 1 strings", "error", func(p *Program, f *Function) { insert(f, 0, constant("s", &Literal{T: T(String)})) }},
		{"const without fixed shape", "type", "no fixed shape", "error", func(p *Program, f *Function) {
			insert(f, 0, constant("s", &Literal{T: T(Float16, Unknown)}))
		}},
		{"const too large", "type", "overflows", "error", func(p *Program, f *Function) {
			insert(f, 0, constant("s", lazy{T(Float16, 1<<31, 1<<31)}))
		}},
		{"const of a type without storage", "const-dtype", "not bf16", "warning", func(p *Program, f *Function) {
			insert(f, 0, constant("s", lazy{T(BFloat16, 4)}))
		}},
		{"negative slice bound", "loader", "element 1 is negative", "warning", func(p *Program, f *Function) {
			find(f, "up").Set("end", Inline(NewInts(Int32, []int{2}, 1, -1)))
			find(f, "up").Set("update", Inline(NewFloats(Float16, []int{1, 3}, 1, 2, 3)))
		}},
		{"beta without gamma", "loader", "without gamma", "warning", func(p *Program, f *Function) {
			o := find(f, "n")
			o.Set("beta", o.In("gamma"))
			for i := range o.Args {
				if o.Args[i].Param == "gamma" {
					o.Args = append(o.Args[:i], o.Args[i+1:]...)
					break
				}
			}
		}},
	}
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			p := sample(t)
			c.fault(p, p.Functions["main"])
			hit := func(loose bool, s Severity) bool {
				for _, f := range Check(p, loose) {
					if f.Rule == c.rule && f.Severity == s && strings.Contains(f.Error(), c.where) {
						return true
					}
				}
				return false
			}
			if !hit(false, Error) {
				t.Errorf("no %s error with %q in %v", c.rule, c.where, Check(p, false))
			}
			if err := Verify(p); err == nil || !strings.Contains(err.Error(), c.where) {
				t.Errorf("Verify says %v", err)
			}
			if c.loose == "nothing" {
				if fs := Check(p, true); len(fs) > 0 {
					t.Errorf("loose: findings %v", fs)
				}
			} else if want := map[string]Severity{"error": Error, "warning": Warning}[c.loose]; !hit(true, want) {
				t.Errorf("loose: no %s %s in %v", c.rule, c.loose, Check(p, true))
			}
		})
	}
}

// lazy is a constant of any size without contents.
type lazy struct{ t TensorType }

func (l lazy) Type() TensorType                 { return l.t }
func (l lazy) WriteTo(io.Writer) (int64, error) { return 0, errors.New("no contents") }

func TestVerifyWideVectors(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	x := b.Input("x", T(Float16, 1, 70000))
	w := b.Input("w", T(Float16, 65536))
	b.Output("ok", b.Op("cast", "c", Args{"x": b.Op("reduce_argmax", "a", Args{"x": w, "axis": 0, "output_dtype": "uint16"}), "dtype": "int32"}))
	if _, err := b.Func(); err != nil {
		t.Fatal(err)
	}
	b.Output("bad", b.Op("cast", "d", Args{"x": b.Op("reduce_argmax", "e", Args{"x": x, "axis": 1, "output_dtype": "uint16"}), "dtype": "int32"}))
	if _, err := b.Func(); err == nil || !strings.Contains(err.Error(), `reduce_argmax "e" output_dtype: uint16 cannot number the 70000 entries`) {
		t.Errorf("uint16 indices over 70000 entries: %v", err)
	}
	b = NewBuilder("main", CoreML8)
	v := b.Input("v", T(Float16, 4))
	b.Output("dot", b.Op("matmul", "m", Args{"x": v, "y": v}))
	if _, err := b.Func(); err == nil || !strings.Contains(err.Error(), "[loader]") {
		t.Errorf("product of two vectors: %v", err)
	}
}

// Constants that only feed constexprs are free of the rank limit: a lookup
// table has two axes more than the weight.
func TestVerifyRankOfTables(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	x := b.Input("x", T(Float16, 1, 2, 2, 2, 2))
	w := b.Op("constexpr_lut_to_dense", "w", Args{
		"indices": NewInts(UInt1, []int{1, 2, 2, 2, 2}, make([]int, 16)...),
		"lut":     NewFloats(Float16, []int{1, 1, 1, 1, 1, 2, 1}, 0, 1),
	})
	b.Output("y", b.Op("add", "y", Args{"x": x, "y": w}))
	if _, err := b.Func(); err != nil {
		t.Error(err)
	}
}

func TestVerifyDraft(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	s := b.State("s", T(Float32, 4))
	b.Output("y", b.Op("relu", "y", Args{"x": b.Op("read_state", "r", Args{"input": s})}))
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	if err := VerifyDraft(program(f)); err != nil {
		t.Errorf("draft: %v", err)
	}
	if err := Verify(program(f)); err == nil {
		t.Error("an fp32 state was accepted for a file")
	}
}

func TestVerifyReportsAtMost(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	x := b.Input("x", T(Float16, 4))
	for range 40 {
		x = b.Op("relu", "r", Args{"x": x})
	}
	b.Output("y", x)
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range f.Body.Ops {
		o.Name = ""
	}
	err = VerifyFunction(f)
	if n := strings.Count(err.Error(), "\n"); n != maxReported || !strings.Contains(err.Error(), "and 15 more findings") {
		t.Errorf("%d lines: %v", n+1, err)
	}
}
