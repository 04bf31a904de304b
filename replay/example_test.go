package replay_test

import (
	"context"
	"fmt"

	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/replay"
)

// An ordinary model drafts with the text alone. Behind two places of it, three
// slots each say what follows if the text's own tokens are right.
func Example() {
	d, err := replay.Open("../speculate/testdata/tiny-gemma3-drafter", replay.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	run, err := d.Over([]drafter.Rows{{Tokens: []int32{2, 45, 300, 7, 1999, 12}}}, [][]int{{1, 3}}, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	draft, err := run.Draft(context.Background(), replay.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Kind(), draft.Rows, "places,", draft.Slots, "slots,", draft.Vocab(), "tokens")
	m := d.Modules()[0]
	fmt.Println(m.Path, m.Class, "is read", m.Reads(3), "times for 3 drafts")
	// Output:
	// model 2 places, 3 slots, 2048 tokens
	// model.embed_tokens embedding is read 3 times for 3 drafts
}
