package pass_test

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mil/pass"
)

// A program is built in fp32 and lowered: its residual stream a quarter, its
// tensors fp16.
func ExamplePipeline() {
	b := mil.NewBuilder("main", mil.CoreML8)
	ids := b.Input("ids", mil.T(mil.Int32, 1))
	embed := b.Const("embed", mil.NewFloats(mil.Float32, []int{2, 4}, 1, 2, 3, 4, 5, 6, 7, 8))
	b.Tag(embed, pass.TagResidual, pass.ResidualSource)
	x := b.Op("gather", "rows", mil.Args{"x": embed, "indices": ids, "axis": 0})
	y := b.Op("layer_norm", "normed", mil.Args{"x": x, "axes": []int{1}, "epsilon": 0.25})
	b.Tag(y, pass.TagResidual, pass.ResidualNorm)
	b.Output("out", y)
	f, err := b.Func()
	if err != nil {
		fmt.Println(err)
		return
	}
	p := mil.NewProgram()
	p.Functions[f.Name] = f
	if err := pass.Pipeline(p, pass.Standard(0.25, true)...); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(mil.Text(p))
	// Output:
	// func main[CoreML8](ids: tensor<int32, [1]>) {
	//   embed = const([0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2]): tensor<fp16, [2, 4]> #residual=source
	//   rows_axis_0 = const(0): tensor<int32, []>
	//   rows_validate_indices_0 = const(false): tensor<bool, []>
	//   rows = gather(x=embed, indices=ids, axis=rows_axis_0, batch_dims=rows_axis_0, validate_indices=rows_validate_indices_0): tensor<fp16, [1, 4]>
	//   normed_axes_0 = const([1]): tensor<int32, [1]>
	//   normed_epsilon_0_scaled = const(0.015625): tensor<fp16, []>
	//   out = layer_norm(x=rows, axes=normed_axes_0, epsilon=normed_epsilon_0_scaled): tensor<fp16, [1, 4]> #residual=norm
	//   return out
	// }
}
