package kernel

// Kernels of packed matrices for 4 and 8 bits; others are decoded in Go.
var neonPacked = [numForms]packedKernels{
	formLUT4:    {decodeLUT4NEON, dot1x1LUT4NEON, dot1x1LUT4NEON, 1, 0, false},
	formScaled4: {decodeScaled4NEON, dot1x1Scaled4NEON, dot1x1Scaled4NEON, 1, 0, false},
	formI8:      {decodeI8NEON, dot1x1I8NEON, dot1x1I8NEON, 1, 0, false},
	formU8:      {decodeU8NEON, dot1x1U8NEON, dot1x1U8NEON, 1, 0, false},
}

//go:noescape
func decodeLUT4NEON(a *byte)

//go:noescape
func dot1x1LUT4NEON(a *byte)

//go:noescape
func decodeScaled4NEON(a *byte)

//go:noescape
func dot1x1Scaled4NEON(a *byte)

//go:noescape
func decodeI8NEON(a *byte)

//go:noescape
func dot1x1I8NEON(a *byte)

//go:noescape
func decodeU8NEON(a *byte)

//go:noescape
func dot1x1U8NEON(a *byte)
