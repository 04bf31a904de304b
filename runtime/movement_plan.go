package runtime

import "slices"

// What a movement op has found out about its operands is kept in the frame and
// serves until a shape changes.

// movement is a region with the way to copy it.
type movement struct {
	valid bool
	from  []int // shape of x
	shape []int
	off   int
	view  bool
	copy  copyTask
}

func (m *movement) plan(r region) {
	ls, ok := nest(r.loops)
	m.shape = append(m.shape[:0], r.shape...)
	m.off, m.view = r.off, ok && contiguous(ls)
	m.copy.copyPlan = planCopy(r.loops)
}

func (m *movement) run(f *frame, o int, x *Tensor) {
	if m.view {
		f.view(o, x, m.off, m.shape...)
		return
	}
	c := &m.copy
	c.dst, c.src, c.so = f.out(o, x.DType, m.shape...).words(), x.words(), m.off
	c.start(f)
	c.dst, c.src = nil, nil
}

// joining keeps the places of the parts while their shapes stay the same.
type joining struct {
	parts  []*Tensor
	shapes [][]int
	shape  []int
	copies []copyTask
}

func (j *joining) same() bool {
	if len(j.shapes) != len(j.parts) {
		return false
	}
	for i, p := range j.parts {
		if !slices.Equal(p.Shape, j.shapes[i]) {
			return false
		}
	}
	return true
}

func (j *joining) plan(shape []int, place func(i int) (int, []loop)) {
	j.shape, j.shapes, j.copies = shape, nil, make([]copyTask, len(j.parts))
	for i, p := range j.parts {
		at, ls := place(i)
		j.copies[i] = copyTask{copyPlan: planCopy(ls), do: at}
		j.shapes = append(j.shapes, slices.Clone(p.Shape))
	}
}

// placement is the way to copy a tensor into a plain region of another, which
// is the same wherever the region begins.
type placement struct {
	valid bool
	x, u  []int // shapes
	copy  copyTask
}

func (p *placement) fits(x, u *Tensor) bool {
	return p.valid && slices.Equal(p.x, x.Shape) && slices.Equal(p.u, u.Shape)
}

func (p *placement) plan(x, u *Tensor, loops []loop, plain bool) {
	p.valid = plain
	p.x, p.u = append(p.x[:0], x.Shape...), append(p.u[:0], u.Shape...)
	p.copy = copyTask{copyPlan: planCopy(loops)}
}
