package runtime_test

import (
	"fmt"
	"log"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/runtime"
)

func Example() {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, 1, 2))
	w := b.Const("w", mil.NewFloats(mil.Float16, []int{3, 2}, 1, 0, 0, 1, 1, 1))
	y := b.Op("linear", "proj", mil.Args{"x": x, "weight": w})
	b.Output("y", b.Op("softmax", "probs", mil.Args{"x": y, "axis": -1}))
	f, err := b.Func()
	if err != nil {
		log.Fatal(err)
	}
	p := mil.NewProgram()
	p.Functions["main"] = f

	prog, err := runtime.Load(p, runtime.Options{Mode: runtime.Typed})
	if err != nil {
		log.Fatal(err)
	}
	in := runtime.NewTensor(mil.Float16, 1, 2)
	in.F[0], in.F[1] = 1, 2
	out, err := prog.New().Run("main", map[string]*runtime.Tensor{"x": in},
		runtime.WithTap(func(name string, t *runtime.Tensor) { fmt.Println(name, t.F) }))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out["y"])
	// Output:
	// proj [1 2 3]
	// y [0.090026855 0.24475098 0.66503906]
	// tensor<fp16, [1, 3]>
}
