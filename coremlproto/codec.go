package coremlproto

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Marshal encodes a model. Equal models give equal bytes: map entries are sorted
// by key and nothing depends on time or memory layout.
func Marshal(m *Model) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("coremlproto: encode model: %w", err)
	}
	return b, nil
}

// Unmarshal decodes a model and keeps fields it does not know.
func Unmarshal(b []byte) (*Model, error) {
	m := &Model{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("coremlproto: decode model: %w (not a Core ML model file, or truncated?)", err)
	}
	return m, nil
}
