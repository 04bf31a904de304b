package mlpackage

import "github.com/smelt-go/smelt/mil"

// WeightBytes is the size that the weight file of p would have, without
// reading a constant: every constant object counts once. Constants that are
// equal but not one object count each, so deduplicate first. It is exact but
// for padding of less than 64 bytes.
func WeightBytes(p *mil.Program) (int64, error) {
	spec, err := specFor(p, 0)
	if err != nil {
		return 0, err
	}
	const align = 64 // of a blob's record and of its data
	end := int64(align)
	eachStored(p, spec, func(t mil.TensorType) {
		end = (end+align-1)/align*align + align + t.NumBytes()
	})
	if end == align {
		return 0, nil
	}
	return end, nil
}
