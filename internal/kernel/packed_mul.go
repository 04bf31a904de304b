package kernel

import (
	"sync"
	"unsafe"
)

// Bits of packedArgs.flags.
const (
	flagOffset = 1 << iota
	flagBias
	flagF16
	flagBF16
	flagFast
	flagNormal
)

// packedArgs is what the kernels of packed matrices read; they use the
// offsets of its fields.
type packedArgs struct {
	dst    *float32
	ldd    int64 // bytes between results
	x      *float32
	w      *byte
	ldw    int64 // bytes between rows of codes
	tab    *float32
	ldt    int64   // bytes between tables of rows
	half   *uint16 // the table in fp16
	par    *float32
	ldp    int64 // bytes between scales of rows
	plane  int64 // bytes from scales to offsets or biases
	blocks int64
	steps  int64 // of a block
	stride int64 // bytes of codes in a step
	unpack *unpackPattern
	flags  int64
	mask   int64
	round  *roundConstants
	next   *uint16 // scales to come
	lines  int64   // in cache lines, those that a call asks for
}

func (a *packedArgs) pointer() *byte { return (*byte)(unsafe.Pointer(a)) }

// unpackPattern brings 16 codes into 32-bit lanes: which two bytes, and by
// how much to shift them.
type unpackPattern struct {
	bytes [64]byte
	shift [lanes]uint32
}

var unpackPatterns = func() (out [9]unpackPattern) {
	for bits := range out {
		u := &out[bits]
		for i := range lanes {
			at := bits * i
			u.shift[i] = uint32(at % 8)
			u.bytes[4*i], u.bytes[4*i+1] = byte(at/8), byte(at/8+1)
			u.bytes[4*i+2], u.bytes[4*i+3] = 0x80, 0x80
		}
	}
	return out
}()

// packedKernels are the kernels of one form.
type packedKernels struct {
	decode func(a *byte)
	dot1   func(a *byte) // one row
	dotN   func(a *byte) // rows rows
	rows   int
	span   int  // elements of a step, if not 16
	fast   bool // products know flagFast and flagNormal
}

// packedScratch is the memory of one product under way.
type packedScratch struct {
	args  packedArgs
	one   [1]float32
	par   []float32
	tab   []float32
	half  []uint16
	rows  []float32
	entry []float32
	codes []byte
}

var packedScratches = sync.Pool{New: func() any { return new(packedScratch) }}

func (s *packedScratch) release() {
	s.args = packedArgs{}
	packedScratches.Put(s)
}

// sized returns a slice of n elements that reuses the storage of *s.
func sized[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}

// Mul computes columns of dst = x·pᵀ: dst[i·ldd+j] is the inner product of
// row i of x (t rows of K elements, ldx apart) and row from+j of p, for n
// values of j.
func (p *Packed) Mul(dst []float32, ldd int, x []float32, ldx, t, from, n int) {
	if t == 0 || n == 0 {
		return
	}
	_, _ = dst[(t-1)*ldd+n-1], x[:(t-1)*ldx+p.K]
	s := packedScratches.Get().(*packedScratch)
	defer s.release()
	if t == 1 && p.fused() {
		p.mulVector(dst[:n], x[:p.K], from, s)
		return
	}
	// Rows are decoded a few at a time, to stay in the cache.
	step := max(packedTile/p.K&^7, 8)
	for j := 0; j < n; j += step {
		m := min(step, n-j)
		rows := sized(&s.rows, m*p.K)
		p.decode(rows, from+j, m, s)
		MulF32(dst[j:], ldd, x, ldx, t, rows, p.K, m, p.K)
	}
}

// MulLeft is Mul with packed rows as x.
func (p *Packed) MulLeft(dst []float32, ldd int, l *Left, from, n int) {
	s := packedScratches.Get().(*packedScratch)
	defer s.release()
	for j := 0; j < n; j += l.f.cols {
		m := min(l.f.cols, n-j)
		rows := sized(&s.rows, m*p.K)
		p.decode(rows, from+j, m, s)
		mulLeft(l, dst[j:], ldd, rows, p.K, m)
	}
}

// packedTile is the number of decoded elements that are multiplied at a time.
const packedTile = 48 << 10

// Rows decodes n rows into dst.
func (p *Packed) Rows(dst []float32, from, n int) {
	s := packedScratches.Get().(*packedScratch)
	p.decode(dst[:n*p.K], from, n, s)
	s.release()
}

// fused says that the current level has a product for p.
func (p *Packed) fused() bool {
	return cur.packed[p.form].dot1 != nil
}

// mulVector multiplies x by rows from … from+len(dst).
func (p *Packed) mulVector(dst, x []float32, from int, s *packedScratch) {
	v := p.Vector
	for c := range v {
		// The first row that is component c, and how many there are.
		first := (c - from%v + v) % v
		if first < len(dst) {
			p.mulRows(dst[first:], v, x, (from+first)/v, (len(dst)-first+v-1)/v, c, s)
		}
	}
}

// mulRows multiplies x by component c of n rows of codes; results are ldd
// apart.
func (p *Packed) mulRows(dst []float32, ldd int, x []float32, row, n, c int, s *packedScratch) {
	k := &cur.packed[p.form]
	a := &s.args
	p.setArgs(a, k.span)
	a.round = roundF16
	if p.fast != nil && k.fast {
		a.round, a.flags = p.fast, a.flags&^(flagF16|flagBF16)|flagFast
		if p.normal {
			a.flags ^= flagFast | flagNormal
		}
	}
	a.x, a.ldd = &x[0], int64(4*ldd)
	for n > 0 {
		m := p.batch(s, row, n, c)
		par, tab := a.par, a.tab
		for i := 0; i < m; {
			a.dst = &dst[i*ldd]
			a.seek(par, tab, i)
			last := row + i + k.rows - 1
			if i+k.rows <= m && !p.overreads(last) {
				a.w = &p.Codes[(row+i)*p.rowBytes]
				p.ahead(a, row+i, k.rows)
				p.run(a, k.dotN)
				i += k.rows
				continue
			}
			a.w = p.codes(s, row+i)
			p.run(a, k.dot1)
			i++
		}
		dst, row, n = dst[min(m*ldd, len(dst)):], row+m, n-m
	}
}

// ahead points to the scales of a batch that follows the current one, as many
// rows from row as it is long.
func (p *Packed) ahead(a *packedArgs, row, n int) {
	from := (row + p.batchRows) * p.blocks
	a.lines = 0
	if p.BlockRows == 1 && p.blocks > 1 && from < len(p.Scale.F16) {
		a.next, a.lines = &p.Scale.F16[from], int64(n*p.blocks+31)/32
	}
}

// run calls a kernel, which counts blocks down.
func (p *Packed) run(a *packedArgs, f func(*byte)) {
	a.blocks = int64(p.blocks)
	f(a.pointer())
}

// seek points to scales and table of row i of those that begin at par and
// tab.
func (a *packedArgs) seek(par, tab *float32, i int) {
	if a.ldp > 0 {
		a.par = (*float32)(unsafe.Add(unsafe.Pointer(par), i*int(a.ldp)))
	}
	if a.ldt > 0 {
		a.tab = (*float32)(unsafe.Add(unsafe.Pointer(tab), i*int(a.ldt)))
	}
}

// setArgs fills in what does not depend on rows.
func (p *Packed) setArgs(a *packedArgs, span int) {
	if span == 0 {
		span = lanes
	}
	width := p.K
	if p.blocks > 0 {
		width = p.Block
	}
	a.ldw, a.stride = int64(p.rowBytes), int64(span*p.Bits/8)
	a.steps = int64(width / span)
	a.unpack = &unpackPatterns[p.Bits]
	a.flags, a.mask = p.flags, int64(1)<<p.Bits-1
}

// overreads says that kernels read beyond the codes where they load row.
func (p *Packed) overreads(row int) bool {
	if p.Bits == 4 || p.Bits == 8 {
		return false
	}
	return (row+1)*p.rowBytes-2*p.Bits+16 > len(p.Codes)
}

// codes is where the codes of a row can be read 16 bytes at a time.
func (p *Packed) codes(s *packedScratch, row int) *byte {
	if !p.overreads(row) {
		return &p.Codes[row*p.rowBytes]
	}
	b := sized(&s.codes, p.rowBytes+16)
	copy(b, p.Codes[row*p.rowBytes:][:p.rowBytes])
	return &b[0]
}

// Scales and tables are prepared for at most maxBatch rows at once, and for
// fewer if they have more than batchNumbers scales.
const (
	maxBatch     = 64
	batchNumbers = 2048
)

// batch prepares scales and tables for as many rows of codes as it returns.
func (p *Packed) batch(s *packedScratch, row, n, c int) int {
	if p.blocks > 0 {
		// Rows of a batch start at a multiple of 8, where the offsets of any
		// width start in a byte of their own.
		n = min(n, p.batchRows-row%8)
		p.params(s, row, n)
		s.args.tab = &s.padded(p.levels)[0]
		return n
	}
	n = min(n, maxBatch)
	if p.TableRows >= 8 || p.Bits > 4 {
		n = min(n, p.TableRows-row%p.TableRows)
		s.args.ldt = 0
		p.table(s, s.table(p.Bits), row, c)
		return n
	}
	tab := sized(&s.tab, lanes*n)
	for i := range n {
		p.table(s, tab[i*lanes:][:lanes], row+i, c)
	}
	s.args.tab, s.args.ldt = &tab[0], 4*lanes
	return n
}

// table is room for as many entries as kernels look up: 16, 64 or 256.
func (s *packedScratch) table(bits int) []float32 {
	n := lanes
	switch {
	case bits > 6:
		n = 256
	case bits > 4:
		n = 64
	}
	t := sized(&s.tab, n)
	s.args.tab = &t[0]
	return t
}

// padded is a table of few entries, repeated up to 16.
func (s *packedScratch) padded(levels []float32) []float32 {
	if len(levels) >= lanes {
		return levels
	}
	t := sized(&s.tab, lanes)
	for i := range t {
		t[i] = levels[i%len(levels)]
	}
	return t
}

// table stores component c of the entries of a row of codes, repeated up to
// the length of tab, and their halves.
func (p *Packed) table(s *packedScratch, tab []float32, row, c int) {
	size := 1 << p.Bits
	base := row / p.TableRows * size * p.Vector
	if p.Vector == 1 {
		p.Table.Read(tab[:size], base)
	} else {
		all := sized(&s.entry, size*p.Vector)
		p.Table.Read(all, base)
		for i := range size {
			tab[i] = all[i*p.Vector+c]
		}
	}
	for i := size; i < len(tab); i++ {
		tab[i] = tab[i%size]
	}
	if p.Bits == 8 && p.f16Table {
		h := sized(&s.half, size)
		F32ToF16(h, tab)
		s.args.half = &h[0]
	}
}

// params stores the scales of n rows, and their offsets or biases.
func (p *Packed) params(s *packedScratch, row, n int) {
	nb, plane := p.blocks, p.batchRows*p.blocks
	par := sized(&s.par, 2*plane)
	s.args.par, s.args.ldp, s.args.plane = &par[0], int64(4*nb), int64(4*plane)
	p.plane(&p.Scale, par, row, n)
	switch {
	case p.flags&flagOffset != 0:
		p.plane(&p.Offset, par[plane:], row, n)
	case p.flags&flagBias != 0:
		p.plane(&p.Bias, par[plane:], row, n)
	}
}

func (p *Packed) plane(v *Numbers, dst []float32, row, n int) {
	nb := p.blocks
	if p.BlockRows == 1 {
		v.Read(dst[:n*nb], row*nb)
		return
	}
	for i := range n {
		if r := row + i; i == 0 || r%p.BlockRows == 0 {
			v.Read(dst[i*nb:][:nb], r/p.BlockRows*nb)
		} else {
			copy(dst[i*nb:][:nb], dst[(i-1)*nb:])
		}
	}
}

// decode decodes n rows of the matrix.
func (p *Packed) decode(dst []float32, from, n int, s *packedScratch) {
	k := &cur.packed[p.form]
	run := k.decode
	a := &s.args
	if run != nil {
		p.setArgs(a, k.span)
	}
	v := p.Vector
	for i := 0; i < n; {
		row := (from + i) / v
		if run == nil {
			tab, step := p.levels, 1
			if tab == nil {
				tab = sized(&s.tab, 1<<p.Bits)
				p.table(s, tab, row, (from+i)%v)
			}
			p.decodeRow(dst[i*p.K:][:p.K], from+i, tab, step, s.one[:])
			i++
			continue
		}
		if v > 1 {
			p.batch(s, row, 1, (from+i)%v)
			p.decodeTo(dst[i*p.K:], s, row)
			i++
			continue
		}
		m := p.batch(s, row, n-i, 0)
		par, tab := a.par, a.tab
		for r := range m {
			a.seek(par, tab, r)
			p.decodeTo(dst[i*p.K:], s, from+i)
			i++
		}
	}
}

func (p *Packed) decodeTo(dst []float32, s *packedScratch, row int) {
	a := &s.args
	a.dst, a.w = &dst[:p.K][0], p.codes(s, row)
	p.run(a, cur.packed[p.form].decode)
}
