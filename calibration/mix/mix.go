// Package mix holds a small text to calibrate and measure on when there is no
// better one: prose, code, dialogue, mathematics, contract terms, structured
// data and three languages other than English, written for this project.
//
// It is enough to rank tensors by what their bits cost. It is not enough to fit
// anything to, and it is no test: measure quality on other text.
package mix

import _ "embed"

//go:embed mix.jsonl
var jsonl []byte

// JSONL returns lines of {"domain": …, "text": …}.
func JSONL() []byte { return append([]byte(nil), jsonl...) }
