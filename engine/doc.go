// Package engine is the host side of a bundle: it fills the inputs that the
// contract declares, runs the chunks one after the other and keeps the
// key-value cache. It knows contracts and packages, and no architecture.
//
// An Engine is an opened bundle; a Session is one sequence. Decode feeds one
// token, Prefill many, and both commit. Verify feeds draft tokens and commits
// nothing: Pending.Commit makes the accepted ones part of the sequence, and
// rejected drafts leave no trace in the cache.
//
// Everything runs from the files on disk, through package runtime.
package engine
