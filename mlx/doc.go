// Package mlx writes and reads MLX model directories, as mlx-lm does.
//
// Quantize turns a Hugging Face directory into one that stock mlx-lm loads:
//
//	model.safetensors, or model-00001-of-0000N.safetensors of at most 5 GiB
//	model.safetensors.index.json   always
//	config.json                    sorted, with quantization and quantization_config
//	tokenizer files, generation_config.json, *.py, README.md
//
// Tensors have the module paths that mlx-lm's model has after sanitize: X.weight
// (codes), X.scales and X.biases. The quantization block names every module whose
// format differs from the default, false where it is kept.
//
// Weights stream: memory holds a few blocks of rows, and the scales and biases of
// one shard. The directory appears whole or not at all, and its bytes depend on
// the source and the recipe alone.
//
// Open reads such a directory and presents its modules decoded, as a
// checkpoint.Source, to anything that reads checkpoints.
package mlx
