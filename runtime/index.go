package runtime

// broadcastStrides gives the element strides that walk a tensor of shape s as
// if it were broadcast to shape to.
func broadcastStrides(s, to []int) []int {
	out := make([]int, len(to))
	n := 1
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 1 {
			out[i+len(to)-len(s)] = n
		}
		n *= s[i]
	}
	return out
}

// strides are the element strides of a dense row-major shape.
func strides(shape []int) []int {
	out := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		out[i] = n
		n *= shape[i]
	}
	return out
}

func dot(a, b []int) int {
	n := 0
	for i := range a {
		n += a[i] * b[i]
	}
	return n
}

// forEach calls body for every index of shape in row-major order. idx is
// reused.
func forEach(shape []int, body func(i int, idx []int)) {
	n := numElements(shape)
	idx := make([]int, len(shape))
	for i := range n {
		body(i, idx)
		for k := len(idx) - 1; k >= 0; k-- {
			if idx[k]++; idx[k] < shape[k] {
				break
			}
			idx[k] = 0
		}
	}
}
