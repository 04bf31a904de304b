package kernel

var panelAVX512 = panelForms{
	most: 14, cols: 32, group: 16,
	tiles: [15]panelTile{
		7: panel7AVX512, 8: panel8AVX512, 9: panel9AVX512, 10: panel10AVX512,
		11: panel11AVX512, 12: panel12AVX512, 13: panel13AVX512, 14: panel14AVX512,
	},
	packF32: packF32AVX512,
	packF16: packF16AVX512,
	fromF32: 1536, fromF16: never,
}

var panelAVX2 = panelForms{
	most: 6, cols: 16, group: 8,
	tiles:   [15]panelTile{3: panel3AVX2, 4: panel4AVX2, 5: panel5AVX2, 6: panel6AVX2},
	packF32: packF32AVX2,
	packF16: packF16AVX2,
	fromF32: 768, fromF16: 3072,
}
