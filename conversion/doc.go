// Package conversion turns a Hugging Face directory into a Core ML bundle:
// it opens the checkpoint, plans the cut, designs the contract, probes ranges
// to keep fp16 safe, builds every chunk's program and writes it.
//
// A bundle is a directory:
//
//	contract.json           what every chunk's functions take and return
//	chunk_01.mlpackage …    the model, cut into layers
//	embeddings.safetensors  the embedding table, unless a chunk gathers rows
//	hf/                     config.json, tokenizer and generation settings
//	report.json             what became of every tensor, sizes, ranges
//
// The same checkpoint and options give the same bytes, whatever the machine.
// Weights stream from the checkpoint into the files, so memory does not grow
// with the model.
package conversion
