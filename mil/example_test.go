package mil_test

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// A function is built op by op; errors need to be looked at only once.
func Example() {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, 1, 4))
	y := b.Op("mul", "layers.0.scaled", mil.Args{"x": x, "y": 0.5})
	y = b.Op("add", "sum", mil.Args{"x": y, "y": x})
	b.Output("hidden_states_out", y)
	f, err := b.Func()
	if err != nil {
		fmt.Println(err)
		return
	}
	p := mil.NewProgram()
	p.Functions[f.Name] = f
	fmt.Print(mil.Text(p))
	// Output:
	// func main[CoreML8](x: tensor<fp16, [1, 4]>) {
	//   layers_0_scaled_y_0 = const(0.5): tensor<fp16, []>
	//   layers_0_scaled = mul(x=x, y=layers_0_scaled_y_0): tensor<fp16, [1, 4]>
	//   hidden_states_out = add(x=layers_0_scaled, y=x): tensor<fp16, [1, 4]>
	//   return hidden_states_out
	// }
}

// The first mistake is latched and named, with the types of its operands.
func ExampleBuilder_errors() {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, 1, 4))
	n := b.Input("n", mil.T(mil.Int32, 4))
	y := b.Op("add", "layers.0.sum", mil.Args{"x": x, "y": n})
	b.Output("out", y)
	_, err := b.Func()
	fmt.Println(err)
	// Output:
	// mil: main: add "layers_0_sum"(x=x tensor<fp16, [1, 4]>, y=n tensor<int32, [4]>): y: is int32, but x is fp16: both must have one element type
}
