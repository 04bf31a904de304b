package kernel

// Packing is done in Go.
var panelNEON = panelForms{
	most: 6, cols: 16, group: 1,
	tiles:   [15]panelTile{3: panel3NEON, 4: panel4NEON, 5: panel5NEON, 6: panel6NEON},
	fromF32: 768, fromF16: 3072,
}

//go:noescape
func panel3NEON(dst *float32, ldd int, a *float32, lda int, b *float32, steps int, top *float32, merges int)

//go:noescape
func panel4NEON(dst *float32, ldd int, a *float32, lda int, b *float32, steps int, top *float32, merges int)

//go:noescape
func panel5NEON(dst *float32, ldd int, a *float32, lda int, b *float32, steps int, top *float32, merges int)

//go:noescape
func panel6NEON(dst *float32, ldd int, a *float32, lda int, b *float32, steps int, top *float32, merges int)
