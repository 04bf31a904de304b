package kernel

// The products with packed matrices of the levels of amd64.

var avx512Packed = [numForms]packedKernels{
	formLUT:     {decodeLUTAVX512, dot1x1LUTAVX512, dot1x8LUTAVX512, 8, 0, false},
	formLUT4:    {decodeLUT4AVX512, dot1x1LUT4AVX512, dot1x8LUT4AVX512, 8, 0, false},
	formScaled:  {decodeScaledAVX512, dot1x1ScaledAVX512, dot1x8ScaledAVX512, 8, 0, true},
	formScaled4: {decodeScaled4AVX512, dot1x1Scaled4AVX512, dot1x8Scaled4AVX512, 8, 0, true},
	formLUT64:   {decodeLUT64AVX512, dot1x1LUT64AVX512, dot1x8LUT64AVX512, 8, 0, false},
	formLUT256:  {decodeLUT256AVX512, nil, nil, 0, 0, false},
	formHalves:  {decodeHalves256AVX512, dot1x1Halves256AVX512, dot1x8Halves256AVX512, 8, 32, false},
	formI8:      {decodeI8AVX512, dot1x1I8AVX512, dot1x8I8AVX512, 8, 0, true},
	formU8:      {decodeU8AVX512, dot1x1U8AVX512, dot1x8U8AVX512, 8, 0, true},
	formUN:      {decodeUNAVX512, dot1x1UNAVX512, dot1x8UNAVX512, 8, 0, true},
}

var avx2Packed = [numForms]packedKernels{
	formLUT:     {decodeLUTAVX2, dot1x1LUTAVX2, dot1x2LUTAVX2, 2, 0, false},
	formLUT4:    {decodeLUT4AVX2, dot1x1LUT4AVX2, dot1x2LUT4AVX2, 2, 0, false},
	formScaled:  {decodeScaledAVX2, dot1x1ScaledAVX2, dot1x2ScaledAVX2, 2, 0, true},
	formScaled4: {decodeScaled4AVX2, dot1x1Scaled4AVX2, dot1x2Scaled4AVX2, 2, 0, true},
	formLUT64:   {decodeLUT64AVX2, dot1x1LUT64AVX2, dot1x2LUT64AVX2, 2, 0, false},
	formLUT256:  {decodeLUT256AVX2, dot1x1LUT256AVX2, dot1x2LUT256AVX2, 2, 0, false},
	formHalves:  {decodeLUT256AVX2, dot1x1LUT256AVX2, dot1x2LUT256AVX2, 2, 0, false},
	formI8:      {decodeI8AVX2, dot1x1I8AVX2, dot1x2I8AVX2, 2, 0, true},
	formU8:      {decodeU8AVX2, dot1x1U8AVX2, dot1x2U8AVX2, 2, 0, true},
	formUN:      {decodeUNAVX2, dot1x1UNAVX2, dot1x2UNAVX2, 2, 0, true},
}
