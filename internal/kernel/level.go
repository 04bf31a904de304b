package kernel

// level is one set of implementations.
type level struct {
	name string

	// Tiles are indexed by rows of x and rows of w, or by rows of p and
	// columns of v; nil where there is none. No tiles: the Go form.
	f16   dotTiles[uint16]
	f32   dotTiles[float32]
	outer outerTiles
	// The same tiles, going on with the sums in dst; none: sums are never
	// interrupted.
	outerAdd outerTiles
	touch    func(x *float32, n int) // brings elements into the cache

	panel *panelForms // nil: products of many rows use the tiles, too

	// Products with packed matrices, by form; none: rows are decoded.
	packed [numForms]packedKernels

	// The rest takes n, a multiple of 16.
	f16ToF32   func(dst *float32, src *uint16, n int)
	f32ToF16   func(dst *uint16, src *float32, n int)
	roundF16   func(x *float32, n int)
	diffF16    func(x *float32, n int) uint32
	add        func(dst, a, b *float32, n int)
	sub        func(dst, a, b *float32, n int)
	mul        func(dst, a, b *float32, n int)
	addScalar  func(dst, a *float32, c float32, n int)
	mulScalar  func(dst, a *float32, c float32, n int)
	scaleMul   func(dst, a, b *float32, c float32, n int)
	sumSquares func(x *float32, n int) float32
	maxOf      func(x *float32, n int) float32
	expShift   func(dst, x *float32, c float32, n int) float32
	silu       func(dst, x *float32, n int)
	geluTanh   func(dst, x *float32, n int)

	cast   *castForms   // nil: the Go forms
	affine *affineForms // likewise
	// Kernels of error feedback; nil likewise.
	feedback *feedbackForms
}

// levels lists what this processor can run, best first; the last is Go.
var levels = []*level{&genericLevel}

// cur is the level in use. Only tests change it.
var cur = levels[0]

// Level names the implementation in use: avx512, avx2, neon or generic.
func Level() string { return cur.name }
