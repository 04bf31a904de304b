package kernel

// The levels of amd64: tables of the functions that generate.sh writes.

var avx512Level = level{
	name: "avx512",
	f16: dotTiles[uint16]{
		1: {1: dot1x1F16AVX512, 4: dot1x4F16AVX512, 8: dot1x8F16AVX512},
		2: {1: dot2x1F16AVX512, 4: dot2x4F16AVX512},
		3: {1: dot3x1F16AVX512, 4: dot3x4F16AVX512},
		4: {1: dot4x1F16AVX512, 4: dot4x4F16AVX512},
		5: {1: dot5x1F16AVX512, 4: dot5x4F16AVX512},
		6: {1: dot6x1F16AVX512, 4: dot6x4F16AVX512},
	},
	f32: dotTiles[float32]{
		1: {1: dot1x1F32AVX512, 4: dot1x4F32AVX512, 8: dot1x8F32AVX512},
		2: {1: dot2x1F32AVX512, 4: dot2x4F32AVX512},
		3: {1: dot3x1F32AVX512, 4: dot3x4F32AVX512},
		4: {1: dot4x1F32AVX512, 4: dot4x4F32AVX512},
		5: {1: dot5x1F32AVX512, 4: dot5x4F32AVX512},
		6: {1: dot6x1F32AVX512, 4: dot6x4F32AVX512},
	},
	outer: outerTiles{
		1: {{256, outer1x256AVX512}, {64, outer1x64AVX512}, {16, outer1x16AVX512}},
		2: {{64, outer2x64AVX512}, {16, outer2x16AVX512}},
		3: {{64, outer3x64AVX512}, {16, outer3x16AVX512}},
		4: {{64, outer4x64AVX512}, {16, outer4x16AVX512}},
	},
	f16ToF32:   f16ToF32AVX512,
	f32ToF16:   f32ToF16AVX512,
	roundF16:   roundF16AVX512,
	diffF16:    diffF16AVX512,
	add:        addAVX512,
	sub:        subAVX512,
	mul:        mulAVX512,
	addScalar:  addScalarAVX512,
	mulScalar:  mulScalarAVX512,
	scaleMul:   scaleMulAVX512,
	sumSquares: sumSquaresAVX512,
	maxOf:      maxOfAVX512,
	expShift:   expShiftAVX512,
	silu:       siluAVX512,
	geluTanh:   geluTanhAVX512,
}

var avx2Level = level{
	name: "avx2",
	f16: dotTiles[uint16]{
		1: {1: dot1x1F16AVX2, 2: dot1x2F16AVX2, 4: dot1x4F16AVX2},
		2: {1: dot2x1F16AVX2, 2: dot2x2F16AVX2},
		3: {1: dot3x1F16AVX2, 2: dot3x2F16AVX2},
	},
	f32: dotTiles[float32]{
		1: {1: dot1x1F32AVX2, 2: dot1x2F32AVX2, 4: dot1x4F32AVX2},
		2: {1: dot2x1F32AVX2, 2: dot2x2F32AVX2},
		3: {1: dot3x1F32AVX2, 2: dot3x2F32AVX2},
	},
	outer: outerTiles{
		1: {{64, outer1x64AVX2}, {32, outer1x32AVX2}, {8, outer1x8AVX2}},
		2: {{32, outer2x32AVX2}, {8, outer2x8AVX2}},
		3: {{32, outer3x32AVX2}, {8, outer3x8AVX2}},
		4: {{16, outer4x16AVX2}, {8, outer4x8AVX2}},
	},
	f16ToF32:   f16ToF32AVX2,
	f32ToF16:   f32ToF16AVX2,
	roundF16:   roundF16AVX2,
	diffF16:    diffF16AVX2,
	add:        addAVX2,
	sub:        subAVX2,
	mul:        mulAVX2,
	addScalar:  addScalarAVX2,
	mulScalar:  mulScalarAVX2,
	scaleMul:   scaleMulAVX2,
	sumSquares: sumSquaresAVX2,
	maxOf:      maxOfAVX2,
	expShift:   expShiftAVX2,
	silu:       siluAVX2,
	geluTanh:   geluTanhAVX2,
}
