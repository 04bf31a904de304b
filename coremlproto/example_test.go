package coremlproto_test

import (
	"fmt"
	"log"

	"github.com/smelt-go/smelt/coremlproto"
)

func Example() {
	b, err := coremlproto.Marshal(&coremlproto.Model{
		SpecificationVersion: 9,
		Description:          &coremlproto.ModelDescription{Metadata: &coremlproto.Metadata{Author: "me"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	m, err := coremlproto.Unmarshal(b)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.GetSpecificationVersion(), m.GetDescription().GetMetadata().GetAuthor())
	// Output: 9 me
}
