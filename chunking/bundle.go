package chunking

// Names of files inside a bundle, beside the chunks and ContractFile.
const (
	// EmbeddingFile holds the embedding table of a sidecar bundle.
	EmbeddingFile = "embeddings.safetensors"
	// PerLayerFile holds the table of per-layer embeddings of models that have
	// one.
	PerLayerFile = "per_layer_embeddings.safetensors"
	// HFDir holds the files copied from the source: config.json, the
	// tokenizer and generation settings.
	HFDir = "hf"
	// ReportFile says what became of every tensor and how the chunks came out.
	ReportFile = "report.json"
)
