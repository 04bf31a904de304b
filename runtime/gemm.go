package runtime

// matmulNT computes dst[m,n] = a[m,k] · b[n,k]ᵀ + bias[n]; bias may be nil.
// Every element is one sum in order of k: of exact float64 products for
// float32 operands, wrapping for int32. The result does not depend on how the
// work is split.
func matmulNT[T float32 | int32, A float64 | int32](f *frame, dst, a, b, bias []T, m, n, k int) {
	const width = 32
	blocks := (n + width - 1) / width
	f.par(m*blocks, 1+1<<15/(width*max(k, 1)), func(lo, hi int) {
		// Blocks of b outside, rows of a inside: a block is read once for
		// all rows that this range covers.
		for t := lo; t < hi; t++ {
			blk, i := t/m, t%m
			row := a[i*k : i*k+k]
			from, to := blk*width, min(n, blk*width+width)
			out := dst[i*n : i*n+n]
			j := from
			for ; j+4 <= to; j += 4 {
				out[j], out[j+1], out[j+2], out[j+3] = dot4[T, A](row, b[j*k:(j+4)*k], biasAt(bias, j))
			}
			for ; j < to; j++ {
				out[j] = dot1[T, A](row, b[j*k:j*k+k], biasAt(bias, j))
			}
		}
	})
}

func biasAt[T any](bias []T, j int) []T {
	if bias == nil {
		return nil
	}
	return bias[j:]
}

func dot1[T float32 | int32, A float64 | int32](x, y, bias []T) T {
	var s A
	y = y[:len(x)]
	for i, v := range x {
		s += A(v) * A(y[i])
	}
	if bias != nil {
		s += A(bias[0])
	}
	return T(s)
}

// dot4 is dot1 with four consecutive rows of y.
func dot4[T float32 | int32, A float64 | int32](x, y, bias []T) (T, T, T, T) {
	var s0, s1, s2, s3 A
	n := len(x)
	y0, y1, y2, y3 := y[:n], y[n:2*n], y[2*n:3*n], y[3*n:4*n]
	for i, v := range x {
		a := A(v)
		s0 += a * A(y0[i])
		s1 += a * A(y1[i])
		s2 += a * A(y2[i])
		s3 += a * A(y3[i])
	}
	if bias != nil {
		s0 += A(bias[0])
		s1 += A(bias[1])
		s2 += A(bias[2])
		s3 += A(bias[3])
	}
	return T(s0), T(s1), T(s2), T(s3)
}

// transposeInto stores the transpose of src [rows, cols] in dst.
func transposeInto[T any](dst, src []T, rows, cols int) {
	const tile = 16
	for r0 := 0; r0 < rows; r0 += tile {
		for c0 := 0; c0 < cols; c0 += tile {
			for r := r0; r < min(rows, r0+tile); r++ {
				for c := c0; c < min(cols, c0+tile); c++ {
					dst[c*rows+r] = src[r*cols+c]
				}
			}
		}
	}
}
