package decompress

import "fmt"

// blocks maps elements of a tensor to the block they are in: every axis is
// cut into equal parts, and blocks are counted in row-major order.
type blocks struct {
	dims  []int // sizes, neighbouring axes merged where blocks allow
	group []int // blocks along each
}

func newBlocks(name string, dims, groups []int) (blocks, error) {
	if len(dims) != len(groups) {
		return blocks{}, fmt.Errorf("%s has block counts %v for axes %v", name, groups, dims)
	}
	b := blocks{}
	for i, d := range dims {
		g := groups[i]
		if g < 1 || d%g != 0 {
			return blocks{}, fmt.Errorf("%s: %d blocks do not divide axis %d of %v", name, g, i, dims)
		}
		k := len(b.dims) - 1
		// An axis that is one block lengthens the blocks of the axis before
		// it; an axis of single elements behind another one is more of them.
		if k >= 0 && (g == 1 || g == d && b.group[k] == b.dims[k]) {
			b.dims[k] *= d
			b.group[k] *= g
			continue
		}
		b.dims, b.group = append(b.dims, d), append(b.group, g)
	}
	return b, nil
}

// runs calls body for the maximal runs of [first, first+n) that lie in one
// block: elements from (relative to first), count and block.
func (b blocks) runs(first, n int, body func(from, count, block int)) {
	if len(b.dims) == 0 {
		body(0, n, 0)
		return
	}
	last := len(b.dims) - 1
	size, groups := b.dims[last], b.group[last]
	width := size / groups
	for done := 0; done < n; {
		at := first + done
		row, col := at/size, at%size
		base := b.outer(row) * groups
		for col < size && done < n {
			count := min(width-col%width, n-done)
			body(done, count, base+col/width)
			col, done = col+count, done+count
		}
	}
}

// outer is the block of a row along all axes but the last.
func (b blocks) outer(row int) int {
	block, scale := 0, 1
	for i := len(b.dims) - 2; i >= 0; i-- {
		c := row % b.dims[i]
		row /= b.dims[i]
		block += c / (b.dims[i] / b.group[i]) * scale
		scale *= b.group[i]
	}
	return block
}
