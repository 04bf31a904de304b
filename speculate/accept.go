package speculate

import "fmt"

// Acceptance says which drafts are accepted. The zero value accepts what the
// target would have said itself, so that the output is exactly that of
// decoding one token at a time.
type Acceptance struct {
	// Margin also accepts a draft whose logit is at most this far below the
	// largest. That is lossy: the output is another text, in which the target's
	// second choices replace its first.
	Margin float64
}

// Lossy reports whether the output may differ from serial decoding's.
func (a Acceptance) Lossy() bool { return a.Margin > 0 }

// Accept counts the drafts to accept: choices[i] is what the target says
// before drafts[i].
func (a Acceptance) Accept(drafts []int32, choices []Choice) (int, error) {
	for i, d := range drafts {
		if d == choices[i].Token {
			continue
		}
		if !a.Lossy() {
			return i, nil
		}
		l := choices[i].Logits
		if l == nil {
			return 0, fmt.Errorf("speculate: accepting within a margin of %g needs the target's logits (convert with --head token,logits)", a.Margin)
		}
		if float64(l[choices[i].Token])-float64(l[d]) > a.Margin {
			return i, nil
		}
	}
	return len(drafts), nil
}
