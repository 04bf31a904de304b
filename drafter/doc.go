// Package drafter is what a speculative drafter and its target say to each
// other, as plain data. Converted drafters (engine.OpenDrafter) and the
// reference ones (parity/reference.OpenDraftSource) are driven through the same
// Session, whatever their architecture.
//
// # A round
//
// The target has processed n tokens, at positions 0 to n-1, and has chosen the
// next one, which it has not processed. The host
//
//  1. hands what the target computed for tokens that are now part of the text
//     to Commit, in order and without gaps,
//  2. calls Draft with the chosen token and gets guesses for the tokens after
//     it: Draft.Tokens[j] is a guess for position n+1+j,
//  3. lets the target verify [next, guesses…], and starts over with the rows of
//     next and of the accepted guesses.
//
// Rejected guesses never reach Commit, so nothing is ever taken back. Which of
// the target's states belongs to which token, and which position a drafter
// rotates by, is the Session's business: the ways in which drafters differ.
//
// Needs says what a drafter reads. States carry a tag, pre or post the
// target's final norm, because the two have one shape and a mix-up is only seen
// in the acceptance.
package drafter
