// Package speculate drafts tokens, verifies them with a target model, and says
// whether one drafter predicts as well as another.
//
// A Source proposes tokens: it looks them up in the text so far, or runs a
// model. A Target feeds them in one call and says what it would have said
// after each; the longest prefix that it agrees with is accepted, and one token
// of its own follows. Greedy acceptance is exact: the output is that of
// decoding one token at a time.
//
//	tokens       x_0 … x_{P-1} are the sequence so far; the target has
//	             processed all but the last, which is pending
//	round        draft d_1 … d_γ; the target is fed [x_{P-1}, d_1 … d_γ]; a
//	             drafts are accepted, a+1 tokens committed to its cache, and
//	             what it says after the last of them is pending
//	acceptance   accepted of drafted
//	τ            tokens a target call emits, 1 + accepted/calls
//
// Records of two drafters over the same prompts are judged by a Gate: the
// second passes only if its acceptance does not drop by more than some points,
// and its round is faster, both with confidence. Prompts are what is resampled.
package speculate
