package kernel

// The tiles multiply rows of x by rows of w over 16·steps elements and one
// step more of packed rows xt, wt of 16 elements if xt is not nil. Their
// bodies are in dot_arm64.h.

//go:noescape
func dot1x1F16NEON(dst *float32, ldd int, x *float32, ldx int, w *uint16, ldw int, steps int, xt *float32, wt *uint16)

//go:noescape
func dot1x2F16NEON(dst *float32, ldd int, x *float32, ldx int, w *uint16, ldw int, steps int, xt *float32, wt *uint16)

//go:noescape
func dot1x4F16NEON(dst *float32, ldd int, x *float32, ldx int, w *uint16, ldw int, steps int, xt *float32, wt *uint16)

//go:noescape
func dot2x1F16NEON(dst *float32, ldd int, x *float32, ldx int, w *uint16, ldw int, steps int, xt *float32, wt *uint16)

//go:noescape
func dot2x2F16NEON(dst *float32, ldd int, x *float32, ldx int, w *uint16, ldw int, steps int, xt *float32, wt *uint16)

//go:noescape
func dot3x1F16NEON(dst *float32, ldd int, x *float32, ldx int, w *uint16, ldw int, steps int, xt *float32, wt *uint16)

//go:noescape
func dot3x2F16NEON(dst *float32, ldd int, x *float32, ldx int, w *uint16, ldw int, steps int, xt *float32, wt *uint16)

//go:noescape
func dot1x1F32NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func dot1x2F32NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func dot1x4F32NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func dot2x1F32NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func dot2x2F32NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func dot3x1F32NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)

//go:noescape
func dot3x2F32NEON(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)
