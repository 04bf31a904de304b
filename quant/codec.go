package quant

import (
	"fmt"

	"github.com/smelt-go/smelt/checkpoint"
)

// Method is a way to find codes for a format.
type Method string

// The methods.
const (
	// RTN rounds to nearest with the format's usual parameters: the bits of
	// the tool that defines the format.
	RTN Method = "rtn"
	// Refit searches for the parameters of least squared error in the same
	// format, judged with the parameters as they are stored. Data-free.
	Refit Method = "refit"
	// ErrorFeedback rounds weights so that later ones make up for the errors of
	// earlier ones, as calibration says they can; see Feedback.
	ErrorFeedback Method = "feedback"
	// Best is ErrorFeedback to a codec. To a whole model it says that every
	// layer is calibrated behind the quantized ones before it, and makes up for
	// a part of their errors.
	Best Method = "best"
)

// Methods are the methods there are.
var Methods = []Method{RTN, Refit, ErrorFeedback, Best}

// Calibrated reports whether the method needs a Feedback.
func (m Method) Calibrated() bool { return m == ErrorFeedback || m == Best }

// ParseMethod reads the name of a method; "" is RTN.
func ParseMethod(s string) (Method, error) {
	switch m := Method(s); m {
	case "":
		return RTN, nil
	case RTN, Refit, ErrorFeedback, Best:
		return m, nil
	}
	return "", fmt.Errorf("quant: method %q is unknown (want rtn, refit, feedback or best)", s)
}

// Part is a tensor that a codec stores for a matrix.
type Part struct {
	Suffix string // "weight", "scales" or "biases"
	DType  checkpoint.DType
	Shape  []int
}

// Bytes is the size of the part.
func (p Part) Bytes() int64 {
	n := int64(p.DType.Bits())
	for _, d := range p.Shape {
		n *= int64(d)
	}
	return n / 8
}

// Rows are rows of a matrix in float32, with what a codec has to know of it.
type Rows struct {
	W     []float32        // [rows, Cols]
	Cols  int              // of the matrix
	DType checkpoint.DType // of the stored matrix, and of its group parameters

	// Importance weights the squared error of every column; nil weights all
	// alike. Method RTN does not look at it.
	Importance []float32
	// Feedback is what methods ErrorFeedback and Best need.
	Feedback *Feedback
}

// Codec is a storage format for matrices whose rows are coded independently.
// Stacks of matrices (three dimensions) are coded as one matrix.
type Codec interface {
	// String names the format: "affine 4-bit g64".
	String() string
	// Parts lists the tensors stored for a matrix [..., rows, cols] of the
	// given element type: BF16, F16 or F32. A matrix the format cannot hold is
	// an error.
	Parts(dt checkpoint.DType, shape []int) ([]Part, error)
	// Encode codes rows. dst has the bytes of those rows of every part.
	Encode(dst [][]byte, r Rows, m Method) error
	// Decode is the inverse: rows of Cols elements of type dt, rounded as the
	// format's runtime does. src is as dst of Encode.
	Decode(dst []float32, src [][]byte, cols int, dt checkpoint.DType)
}

// Bytes is the size of everything c stores for a matrix.
func Bytes(c Codec, dt checkpoint.DType, shape []int) (int64, error) {
	parts, err := c.Parts(dt, shape)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, p := range parts {
		n += p.Bytes()
	}
	return n, nil
}

// checkMatrix refuses what no codec stores.
func checkMatrix(dt checkpoint.DType, shape []int, group int) error {
	switch dt {
	case checkpoint.BF16, checkpoint.F16, checkpoint.F32:
	default:
		return fmt.Errorf("dtype is %v, want BF16, F16 or F32", dt)
	}
	if len(shape) < 2 || len(shape) > 3 {
		return fmt.Errorf("shape is %v, want a matrix or a stack of matrices", shape)
	}
	cols := shape[len(shape)-1]
	for _, d := range shape {
		if d < 1 {
			return fmt.Errorf("shape is %v, which has no elements", shape)
		}
	}
	if cols%group != 0 {
		return fmt.Errorf("the last dimension is %d, which groups of %d do not divide (choose another group size, or keep such weights: keep_indivisible)", cols, group)
	}
	return nil
}

// withLast is shape with another last dimension.
func withLast(shape []int, n int) []int {
	s := append([]int(nil), shape...)
	s[len(s)-1] = n
	return s
}
