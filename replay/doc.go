// Package replay runs speculative drafters over a text that their target has
// been through, at many places at once and without the target: what measuring a
// drafter thousands of times needs, where engine.Drafter and
// parity/reference.DraftSource draft for one place after the other.
//
// A text is drafter.Rows from position 0 on: tokens with whatever the drafter
// reads of its target, as package capture keeps it. A base is a number n of
// tokens that are committed; the target's choice is then token n of the text, and
// slot j guesses token n+1+j. Drafts are forced: slot j sees the text's own
// tokens n+1 to n+j in place of what earlier slots guessed, which is what it sees
// live where they were right, the only case in which it counts.
//
// Open takes every drafter that can be converted, and ordinary models, which
// draft with their own text alone. Forward definitions are those of
// parity/reference, whose sessions give the same logits (tests hold them against
// each other); sums are those of internal/kernel, the same on every number of
// cores at one kernel level.
//
// Options.Weights puts other matrices in the place of a module's, Options.Tap
// sees what modules multiply.
package replay
