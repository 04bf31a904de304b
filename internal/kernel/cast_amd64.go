package kernel

var avx512Cast = castForms{
	bf16ToF32: bf16ToF32AVX512,
	bf16ToF16: bf16ToF16AVX512,
	maxBits:   maxBitsAVX512,
	maxBits16: maxBits16AVX512,
	exact: dotTiles[float32]{
		1: {1: exact1x1AVX512, 4: exact1x4AVX512},
		2: {1: exact2x1AVX512, 4: exact2x4AVX512},
		3: {1: exact3x1AVX512, 4: exact3x4AVX512},
		4: {1: exact4x1AVX512, 4: exact4x4AVX512},
		5: {1: exact5x1AVX512, 4: exact5x4AVX512},
	},
}

var avx2Cast = castForms{
	bf16ToF32: bf16ToF32AVX2,
	bf16ToF16: bf16ToF16AVX2,
	maxBits:   maxBitsAVX2,
	maxBits16: maxBits16AVX2,
	exact: dotTiles[float32]{
		1: {1: exact1x1AVX2, 2: exact1x2AVX2},
		2: {1: exact2x1AVX2, 2: exact2x2AVX2},
	},
}
