package kernel

var avx512Affine = affineForms{
	rang:    affineRangeAVX512,
	code:    affineCodeAVX512,
	moments: affineMomentsAVX512,
	errors:  affineErrorAVX512,
}

var avx2Affine = affineForms{
	rang:    affineRangeAVX2,
	code:    affineCodeAVX2,
	moments: affineMomentsAVX2,
	errors:  affineErrorAVX2,
}
