package mil

import "fmt"

// Opset is a version of the op set of ML Programs. Opset N belongs to one
// specification version of the Core ML file format and one OS release.
type Opset int

// The opsets from iOS 15 (CoreML5, spec 6) to iOS 26 (CoreML9, spec 10).
const (
	CoreML5 Opset = 5
	CoreML6 Opset = 6
	CoreML7 Opset = 7
	CoreML8 Opset = 8
	CoreML9 Opset = 9
)

// String returns the spelling used in the file: CoreML8.
func (o Opset) String() string { return fmt.Sprintf("CoreML%d", int(o)) }

// SpecVersion is the lowest specificationVersion that may hold the opset.
func (o Opset) SpecVersion() int { return int(o) + 1 }

// ParseOpset reads the spelling used in the file.
func ParseOpset(s string) (Opset, error) {
	for o := CoreML5; o <= CoreML9; o++ {
		if o.String() == s {
			return o, nil
		}
	}
	return 0, fmt.Errorf("mil: unknown opset %q (known: CoreML5 to CoreML9)", s)
}
