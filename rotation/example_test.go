package rotation_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/rotation"
)

func ExampleNew() {
	dir, err := fixtures.Dir("qwen2")
	if err != nil {
		fmt.Println(err)
		return
	}
	ck, err := checkpoint.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ck.Close()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := rotation.New(ck, config, 42)
	if err != nil {
		fmt.Println(err)
		return
	}
	norm, _ := m.Tensor("model.norm.weight")
	gains, err := checkpoint.ReadAll(norm)
	fmt.Println(gains[:3], err)
	// Output: [1 1 1] <nil>
}
