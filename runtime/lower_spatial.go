package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

var spatialLowerers = map[string]lowerer{
	"crop":            lowerCrop,
	"pixel_shuffle":   toSpace("upscale_factor", 0, 1, 4, 2, 5, 3),
	"depth_to_space":  toSpace("block_size", 0, 3, 4, 1, 5, 2),
	"pixel_unshuffle": fromSpace("downscale_factor", 0, 1, 3, 5, 2, 4),
	"space_to_depth":  fromSpace("block_size", 0, 3, 5, 1, 2, 4),
	"space_to_batch":  lowerSpaceToBatch,
	"batch_to_space":  lowerBatchToSpace,
}

func lowerCrop(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "crop_height", "crop_width")
	if err != nil {
		return instr{}, err
	}
	h, _ := c.Ints("crop_height")
	w, _ := c.Ints("crop_width")
	if len(h) != 2 || len(w) != 2 {
		return instr{}, fmt.Errorf("crop_height is %v and crop_width %v, want two numbers each", h, w)
	}
	return l.moved(op, func(_ *frame, x *Tensor) (region, error) { return cropped(x.Shape, [4]int{h[0], h[1], w[0], w[1]}) })
}

// cropped cuts [top, bottom, left, right] off the last two axes.
func cropped(shape []int, edge [4]int) (region, error) {
	axes := make([]mil.SliceAxis, len(shape))
	for k, n := range shape {
		axes[k] = mil.SliceAxis{N: n, Step: 1}
	}
	for i := range 2 {
		k := len(shape) - 2 + i
		before, after := edge[2*i], edge[2*i+1]
		if k < 0 || before < 0 || after < 0 || before+after > shape[k] {
			return region{}, fmt.Errorf("cannot crop %v off %v", edge, shape)
		}
		axes[k] = mil.SliceAxis{Start: before, N: shape[k] - before - after, Step: 1}
	}
	return sliceRegion(shape, axes), nil
}

// toSpace splits the channels into a block and the rest, in the order that
// perm tells: 1 is the rest and 2, 3 the block in pixel_shuffle's layout
// [n, C, f, f, H, W], 1, 2 the block and 3 the rest in depth_to_space's.
func toSpace(factor string, perm ...int) lowerer {
	return func(l *lowering, op *mil.Op) (instr, error) {
		return l.blocked(op, factor, func(n, c, h, w, f int) (region, error) {
			if c%(f*f) != 0 {
				return region{}, fmt.Errorf("%d channels are not a multiple of %d²", c, f)
			}
			split := []int{n, c / f / f, f, f, h, w}
			if perm[1] == 3 {
				split = []int{n, f, f, c / f / f, h, w}
			}
			r := permuted(split, perm)
			r.shape = []int{n, c / f / f, h * f, w * f}
			return r, nil
		})
	}
}

// fromSpace is the inverse: perm orders [n, C, H, f, W, f].
func fromSpace(factor string, perm ...int) lowerer {
	return func(l *lowering, op *mil.Op) (instr, error) {
		return l.blocked(op, factor, func(n, c, h, w, f int) (region, error) {
			if h%f != 0 || w%f != 0 {
				return region{}, fmt.Errorf("%d×%d does not divide into blocks of %d", h, w, f)
			}
			r := permuted([]int{n, c, h / f, f, w / f, f}, perm)
			r.shape = []int{n, c * f * f, h / f, w / f}
			return r, nil
		})
	}
}

func (l *lowering) blocked(op *mil.Op, factor string, find func(n, c, h, w, f int) (region, error)) (instr, error) {
	k, err := l.known(op, factor)
	if err != nil {
		return instr{}, err
	}
	f := k.Int(factor, 0)
	return l.moved(op, func(_ *frame, x *Tensor) (region, error) {
		if len(x.Shape) != 4 || f < 1 {
			return region{}, fmt.Errorf("x is %v and %s %d, want rank 4 and a positive factor", x, factor, f)
		}
		return find(x.Shape[0], x.Shape[1], x.Shape[2], x.Shape[3], f)
	})
}

// batchBlocks reads the parameters of the two batch ops.
func (l *lowering) batchBlocks(op *mil.Op, border string) (x int, b [2]int, edge [4]int, err error) {
	c, err := l.known(op, "block_shape", border)
	if err != nil {
		return
	}
	bs, _ := c.Ints("block_shape")
	es, _ := c.Ints(border)
	if copy(b[:], bs) != 2 || copy(edge[:], es) != 4 || b[0] < 1 || b[1] < 1 {
		return 0, b, edge, fmt.Errorf("block_shape is %v and %s %v, want two positive sizes and a 2×2 matrix", bs, border, es)
	}
	x, err = l.must(op, "x")
	return
}

func lowerSpaceToBatch(l *lowering, op *mil.Op) (instr, error) {
	x, b, p, err := l.batchBlocks(op, "paddings")
	if err != nil {
		return instr{}, err
	}
	o, tmp := l.result(op, 0), l.newSlot()
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		t := f.t[x]
		if len(t.Shape) != 4 {
			return fmt.Errorf("x is %v, want rank 4", t)
		}
		n, c := t.Shape[0], t.Shape[1]
		h, w := t.Shape[2]+p[0]+p[1], t.Shape[3]+p[2]+p[3]
		if h%b[0] != 0 || w%b[1] != 0 {
			return fmt.Errorf("padded size %d×%d does not divide into blocks %v", h, w, b)
		}
		padded := f.out(tmp, t.DType, n, c, h, w)
		f.fillWords(padded.words(), 0)
		at, ls := placed2(padded.Shape, t.Shape, p[0], p[2])
		f.copyLoops(padded.words(), at, t.words(), 0, ls)
		r := permuted([]int{n, c, h / b[0], b[0], w / b[1], b[1]}, []int{3, 5, 0, 1, 2, 4})
		out := f.out(o, t.DType, n*b[0]*b[1], c, h/b[0], w/b[1])
		f.copyLoops(out.words(), 0, padded.words(), 0, r.loops)
		return nil
	}}, nil
}

// placed2 is where an image goes in a larger one, [top, left] from its corner.
func placed2(shape, part []int, top, left int) (int, []loop) {
	d := strides(shape)
	ls := axesLoops(part, strides(part))
	for k := range ls {
		ls[k].d = d[k]
	}
	return top*d[2] + left*d[3], ls
}

func lowerBatchToSpace(l *lowering, op *mil.Op) (instr, error) {
	x, b, p, err := l.batchBlocks(op, "crops")
	if err != nil {
		return instr{}, err
	}
	o, tmp := l.result(op, 0), l.newSlot()
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		t := f.t[x]
		if len(t.Shape) != 4 || t.Shape[0]%(b[0]*b[1]) != 0 {
			return fmt.Errorf("x is %v, want rank 4 and a batch that is a multiple of block_shape %v", t, b)
		}
		n, c, h, w := t.Shape[0]/b[0]/b[1], t.Shape[1], t.Shape[2], t.Shape[3]
		r := permuted([]int{b[0], b[1], n, c, h, w}, []int{2, 3, 4, 0, 5, 1})
		full := f.out(tmp, t.DType, n, c, h*b[0], w*b[1])
		f.copyLoops(full.words(), 0, t.words(), 0, r.loops)
		cut, err := cropped(full.Shape, p)
		if err != nil {
			return err
		}
		f.copyLoops(f.out(o, t.DType, cut.shape...).words(), 0, full.words(), cut.off, cut.loops)
		return nil
	}}, nil
}
