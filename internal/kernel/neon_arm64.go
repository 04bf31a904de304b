package kernel

// Vector forms for arm64; n is a multiple of 16, and the tiles of outer.go
// are named by rows of p and columns of v.

//go:noescape
func outer1x64NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outer1x16NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outer1x4NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outer2x32NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outer2x4NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outer3x16NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outer3x4NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outer4x16NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outer4x4NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outerAdd1x64NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outerAdd1x16NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outerAdd2x32NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outerAdd3x16NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outerAdd4x16NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outerAdd1x4NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outerAdd2x4NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outerAdd3x4NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func outerAdd4x4NEON(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

//go:noescape
func f16ToF32NEON(dst *float32, src *uint16, n int)

//go:noescape
func f32ToF16NEON(dst *uint16, src *float32, n int)

//go:noescape
func roundF16NEON(x *float32, n int)

//go:noescape
func diffF16NEON(x *float32, n int) uint32

//go:noescape
func addNEON(dst, a, b *float32, n int)

//go:noescape
func subNEON(dst, a, b *float32, n int)

//go:noescape
func mulNEON(dst, a, b *float32, n int)

//go:noescape
func addScalarNEON(dst, a *float32, c float32, n int)

//go:noescape
func mulScalarNEON(dst, a *float32, c float32, n int)

//go:noescape
func scaleMulNEON(dst, a, b *float32, c float32, n int)

//go:noescape
func sumSquaresNEON(x *float32, n int) float32

//go:noescape
func maxOfNEON(x *float32, n int) float32

//go:noescape
func expShiftNEON(dst, x *float32, c float32, n int) float32

//go:noescape
func siluNEON(dst, x *float32, n int)

//go:noescape
func geluTanhNEON(dst, x *float32, n int)
