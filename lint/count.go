package lint

import "github.com/smelt-go/smelt/mil"

// Chunk counts what one package holds.
type Chunk struct {
	Name    string `json:"name"`
	Layers  int    `json:"layers,omitempty"` // decoder layers, if known
	Weights int64  `json:"weight_bytes"`     // of the weight file
	// Functions are in the order of the file.
	Functions []Function `json:"functions"`
}

// Function counts the operations of one function.
type Function struct {
	Name string `json:"name"`
	// Ops compute at every call. Constexprs are evaluated when the model is
	// loaded, Consts are data.
	Ops        int            `json:"ops"`
	Constexprs int            `json:"constexprs"`
	Consts     int            `json:"consts"`
	Kinds      map[string]int `json:"kinds"`                     // of Ops
	Compressed map[string]int `json:"constexpr_kinds,omitempty"` // of Constexprs
}

func count(c *chunk) Chunk {
	out := Chunk{Name: c.name, Layers: c.layers, Weights: c.weights, Functions: []Function{}}
	for _, f := range c.functions {
		out.Functions = append(out.Functions, countOps(f.Name, f.ops))
	}
	return out
}

func countOps(name string, ops []*mil.Op) Function {
	n := Function{Name: name, Kinds: map[string]int{}}
	for _, o := range ops {
		switch {
		case o.IsConst():
			n.Consts++
		case isConstexpr(o):
			n.Constexprs++
			if n.Compressed == nil {
				n.Compressed = map[string]int{}
			}
			n.Compressed[o.Kind]++
		default:
			n.Ops++
			n.Kinds[o.Kind]++
		}
	}
	return n
}
