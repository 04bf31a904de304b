// Package inspect describes a file or directory of a conversion as data: a
// Hugging Face checkpoint, one safetensors file, an .mlpackage or a bundle.
//
// Path finds out what it is given and fills in the matching part of a Report,
// which marshals to JSON. Weights are not read: a checkpoint costs its headers,
// a package its model file.
//
// A checkpoint that cannot be converted (an architecture that is not known, a
// tensor too many) is still described as far as it can be; Checkpoint.Problem
// then says why. Damaged files are errors.
package inspect
