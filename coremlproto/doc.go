// Package coremlproto holds the part of Core ML's model schema that smelt reads
// and writes: Model, ModelDescription, feature types and the ML Program language.
//
// The .proto files are written by hand from field names and numbers and are
// compatible with Core ML on the wire. They are a subset: fields they do not
// declare (a neural network body, say) are kept as unknown fields and written
// back unchanged. Message and file names are registered under smelt.coremlproto,
// so another copy of the schema can be linked into the same binary.
//
// The generated Go code needs no protoc to refresh: run go generate here.
package coremlproto

//go:generate go -C ../internal/tools run ./protogen -root ../../coremlproto -import smelt/coremlproto -out ../../coremlproto features.proto mil.proto model.proto
