package kernel

// What has no assembly runs in Go.
var neonCast = func() castForms {
	c := genericCast
	c.bf16ToF32 = bf16ToF32NEON
	c.bf16ToF16 = bf16ToF16NEON
	c.maxBits = maxBitsNEON
	c.maxBits16 = maxBits16NEON
	c.exact = dotTiles[float32]{
		1: {1: exact1x1NEON, 2: exact1x2NEON, 4: exact1x4NEON},
		2: {1: exact2x1NEON, 2: exact2x2NEON},
	}
	return c
}()

//go:noescape
func bf16ToF32NEON(dst *float32, src *uint16, n int)

//go:noescape
func bf16ToF16NEON(dst, src *uint16, scale float32, n int) uint32

//go:noescape
func maxBitsNEON(x *float32, n int) uint32

//go:noescape
func maxBits16NEON(x *uint16, n int) uint32

//go:noescape
func exact1x1NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func exact1x2NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func exact1x4NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func exact2x1NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func exact2x2NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)
