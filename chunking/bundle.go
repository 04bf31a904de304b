package chunking

// Names of files inside a bundle, beside the chunks and ContractFile.
const (
	// EmbeddingFile holds the embedding table of a sidecar bundle.
	EmbeddingFile = "embeddings.safetensors"
	// PerLayerFile holds the table of per-layer embeddings of models that have
	// one.
	PerLayerFile = "per_layer_embeddings.safetensors"
	// EmbeddingInt8 and PerLayerInt8 begin the names of the same tables with
	// rows of int8: Int8Codes and Int8Scales end them.
	EmbeddingInt8 = "embed_tokens"
	PerLayerInt8  = "embed_tokens_per_layer"
	Int8Codes     = "_q8.bin"
	Int8Scales    = "_scales.bin"
	// HFDir holds the files copied from the source: config.json, the
	// tokenizer and generation settings.
	HFDir = "hf"
	// ReportFile says what became of every tensor and how the chunks came out.
	ReportFile = "report.json"
)
