package mlpackage_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

// A program is built, written, and read back from disk.
func Example() {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, 1, 4))
	w := b.Const("w", mil.NewFloats(mil.Float16, []int{3, 4}, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0))
	b.Output("y", b.Op("linear", "project", mil.Args{"x": x, "weight": w}))
	f, err := b.Func()
	if err != nil {
		log.Fatal(err)
	}
	p := mil.NewProgram()
	p.Functions["main"] = f

	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "project.mlpackage")
	report, err := mlpackage.Write(context.Background(), path, p, mlpackage.WriteOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("spec %d, %d blob in %d bytes\n", report.Spec, report.Blobs, report.Weights)

	read, err := mlpackage.Read(path, mlpackage.ReadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer read.Close()
	for _, feature := range read.Features["main"].Outputs {
		fmt.Println(feature.Name, feature.Type)
	}
	// Output:
	// spec 9, 1 blob in 152 bytes
	// y tensor<fp16, [1, 3]>
}
