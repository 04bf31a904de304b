// Package checkpoint reads and writes safetensors checkpoints.
//
// [Open] takes a directory (model.safetensors, or shards with
// model.safetensors.index.json), one .safetensors file or one index file. Only
// headers are read; a [Tensor] is a description until its bytes are asked for.
// Reads stream through small buffers, so a conversion's memory stays flat
// whatever the checkpoint's size; [Raw] maps the file instead and copies
// nothing.
//
// The reader is strict: every byte of the data section belongs to exactly one
// tensor, sizes agree with shapes, names are unique valid UTF-8, and the index
// and its shards name the same tensors. Anything else is an error that names
// the file and the tensor; a file that shrinks while it is open gives an
// error, too. Every dtype of the format is recognised (see [DType]); values are
// read from all but the 6-bit floats and C64, whose raw bytes are available.
//
// The writer streams: header first, then one WriteTo a tensor, in the order and
// with the padding of the reference implementation. A file appears whole, by
// rename, or not at all. The bytes depend on the tensors and metadata alone.
//
// Multimodal checkpoints hold a language model under a prefix;
// [Checkpoint.Text] presents it under the names a text-only checkpoint uses.
//
// Reading is safe for concurrent use. Close invalidates mapped bytes.
package checkpoint
