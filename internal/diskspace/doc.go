// Package diskspace reserves room for files before they are written: in one
// piece on the disk, and without allocating it block by block.
package diskspace
