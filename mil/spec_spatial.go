package mil

import (
	"fmt"
	"slices"
)

// Operators on images [n, C, H, W] that exchange space with channels or batch.

var spatialSpecs = []OpSpec{
	op("crop", "cut [before, after] off the last two axes", inferCrop,
		req("x", Floats), attr("crop_height", Ints32), attr("crop_width", Ints32)),
	blockOp("pixel_shuffle", "channels to space as PyTorch's PixelShuffle: [n, C·f², H, W] to [n, C, H·f, W·f]", "upscale_factor", true),
	blockOp("pixel_unshuffle", "the inverse of pixel_shuffle", "downscale_factor", false).from(CoreML6),
	blockOp("depth_to_space", "channels to space, block position outermost in C", "block_size", true),
	blockOp("space_to_depth", "the inverse of depth_to_space", "block_size", false),
	op("space_to_batch", "pad H and W, then move blocks into the batch axis", inferSpaceToBatch,
		req("x", Floats), attr("block_shape", Ints32), attr("paddings", Ints32)),
	op("batch_to_space", "the inverse of space_to_batch, then crop", inferBatchToSpace,
		req("x", Floats), attr("block_shape", Ints32), attr("crops", Ints32)),
}

func inferCrop(c *Infer) ([]Type, error) {
	x := c.T("x")
	out := append([]int(nil), x.Shape...)
	for i, name := range []string{"crop_height", "crop_width"} {
		v, _ := c.Ints(name)
		if len(v) != 2 || x.Rank() < 2 {
			return nil, fmt.Errorf("%s is %v and x %v, want two numbers and rank 2 or more", name, v, x)
		}
		k := len(out) - 2 + i
		var err error
		if out[k], err = cropDim(out[k], v[0], v[1]); err != nil {
			return nil, err
		}
	}
	return one(TensorType{x.DType, out}), nil
}

// cropDim takes before and after off dimension d.
func cropDim(d, before, after int) (int, error) {
	if d == Unknown {
		return Unknown, nil
	}
	if before < 0 || after < 0 || before+after > d {
		return 0, fmt.Errorf("cannot crop %d and %d off a size of %d", before, after, d)
	}
	return d - before - after, nil
}

// blockOp describes an op that trades factor² channels for space.
func blockOp(kind, doc, factor string, toSpace bool) OpSpec {
	d := Ints32
	if factor == "downscale_factor" {
		d = Dom(UInt32)
	}
	return op(kind, doc, func(c *Infer) ([]Type, error) {
		x, f := c.T("x"), c.Int(factor, 0)
		if x.Rank() != 4 || f < 1 || f > 1<<15 {
			return nil, fmt.Errorf("x is %v and %s %d, want rank 4 and a factor of 1 to 32768", x, factor, f)
		}
		n, ch, h, w := x.Shape[0], x.Shape[1], x.Shape[2], x.Shape[3]
		if toSpace {
			if ch != Unknown && ch%(f*f) != 0 {
				return nil, fmt.Errorf("%d channels are not a multiple of %d²", ch, f)
			}
			return one(T(x.DType, n, divDim(ch, f*f), mulDim(h, f), mulDim(w, f))), nil
		}
		if h != Unknown && h%f != 0 || w != Unknown && w%f != 0 {
			return nil, fmt.Errorf("%v does not divide into blocks of %d", x, f)
		}
		return one(T(x.DType, n, mulDim(ch, f*f), divDim(h, f), divDim(w, f))), nil
	}, req("x", Floats), attr(factor, d))
}

// blocks reads block_shape and the 2×2 border parameter.
func (c *Infer) blocks(border string) (block, edge []int, err error) {
	x, e := c.T("x"), c.T(border)
	block, _ = c.Ints("block_shape")
	edge, _ = c.Ints(border)
	if x.Rank() != 4 || len(block) != 2 || block[0] < 1 || block[1] < 1 || e.Rank() != 2 || len(edge) != 4 {
		err = fmt.Errorf("x is %v, block_shape %v and %s %v, want rank 4, two positive sizes and a 2×2 matrix", x, block, border, e)
	}
	return block, edge, err
}

func inferSpaceToBatch(c *Infer) ([]Type, error) {
	x := c.T("x")
	b, p, err := c.blocks("paddings")
	if err != nil {
		return nil, err
	}
	if slices.Min(p) < 0 {
		return nil, fmt.Errorf("paddings are %v, want none below 0", p)
	}
	h, w := addDim(x.Shape[2], p[0]+p[1]), addDim(x.Shape[3], p[2]+p[3])
	if h != Unknown && h%b[0] != 0 || w != Unknown && w%b[1] != 0 {
		return nil, fmt.Errorf("padded size %s does not divide into blocks %v", shapeString([]int{h, w}), b)
	}
	return one(T(x.DType, mulDim(x.Shape[0], b[0]*b[1]), x.Shape[1], divDim(h, b[0]), divDim(w, b[1]))), nil
}

func inferBatchToSpace(c *Infer) ([]Type, error) {
	x := c.T("x")
	b, p, err := c.blocks("crops")
	if err != nil {
		return nil, err
	}
	if x.Shape[0] != Unknown && x.Shape[0]%(b[0]*b[1]) != 0 {
		return nil, fmt.Errorf("batch size %d is not a multiple of block_shape %v", x.Shape[0], b)
	}
	h, err := cropDim(mulDim(x.Shape[2], b[0]), p[0], p[1])
	if err != nil {
		return nil, err
	}
	w, err := cropDim(mulDim(x.Shape[3], b[1]), p[2], p[3])
	return one(T(x.DType, divDim(x.Shape[0], b[0]*b[1]), x.Shape[1], h, w)), err
}
