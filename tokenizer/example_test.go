package tokenizer_test

import (
	"fmt"

	"github.com/smelt-go/smelt/tokenizer"
)

func Example() {
	tok, err := tokenizer.Load("testdata/llama-like")
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.Encode("the attention cache<|eot_id|>", tokenizer.EncodeOptions{AddSpecial: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range ids {
		token, _ := tok.Token(id)
		fmt.Printf("%q\n", token)
	}
	fmt.Printf("%q\n", tok.Decode(ids, tokenizer.DecodeOptions{SkipSpecial: true}))
	// Output:
	// "<|begin_of_text|>"
	// "the"
	// "Ġattention"
	// "Ġcache"
	// "<|eot_id|>"
	// "the attention cache"
}

// A model that falls back to bytes spells one character over several ids;
// the stream holds them back until the character is whole.
func ExampleStream() {
	tok, err := tokenizer.Load("testdata/gemma-like")
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.Encode("so 😀!", tokenizer.EncodeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	stream := tok.NewStream(tokenizer.DecodeOptions{SkipSpecial: true})
	for _, id := range ids {
		fmt.Printf("%q ", stream.Push(id))
	}
	fmt.Printf("%q\n", stream.Flush())
	// Output:
	// "s" "o" " " "" "" "" "" "😀!" ""
}

// What a file asks for and this package does not know is an error.
func ExampleParse() {
	_, err := tokenizer.Parse("model/tokenizer.json", []byte(`{
		"pre_tokenizer": {"type": "UnicodeScripts"},
		"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}
	}`))
	fmt.Println(err)
	// Output:
	// tokenizer: model/tokenizer.json: pre_tokenizer: pre-tokenizer "UnicodeScripts" is not supported
}
