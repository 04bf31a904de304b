package kernel

// The level of arm64: a table of the hand-written functions.

var neonLevel = level{
	name: "neon",
	f16: dotTiles[uint16]{
		1: {1: dot1x1F16NEON, 2: dot1x2F16NEON, 4: dot1x4F16NEON},
		2: {1: dot2x1F16NEON, 2: dot2x2F16NEON},
		3: {1: dot3x1F16NEON, 2: dot3x2F16NEON},
	},
	f32: dotTiles[float32]{
		1: {1: dot1x1F32NEON, 2: dot1x2F32NEON, 4: dot1x4F32NEON},
		2: {1: dot2x1F32NEON, 2: dot2x2F32NEON},
		3: {1: dot3x1F32NEON, 2: dot3x2F32NEON},
	},
	outer: outerTiles{
		1: {{64, outer1x64NEON}, {16, outer1x16NEON}, {4, outer1x4NEON}},
		2: {{32, outer2x32NEON}, {4, outer2x4NEON}},
		3: {{16, outer3x16NEON}, {4, outer3x4NEON}},
		4: {{16, outer4x16NEON}, {4, outer4x4NEON}},
	},
	packed:     neonPacked,
	f16ToF32:   f16ToF32NEON,
	f32ToF16:   f32ToF16NEON,
	roundF16:   roundF16NEON,
	diffF16:    diffF16NEON,
	add:        addNEON,
	sub:        subNEON,
	mul:        mulNEON,
	addScalar:  addScalarNEON,
	mulScalar:  mulScalarNEON,
	scaleMul:   scaleMulNEON,
	sumSquares: sumSquaresNEON,
	maxOf:      maxOfNEON,
	expShift:   expShiftNEON,
	silu:       siluNEON,
	geluTanh:   geluTanhNEON,
	cast:       &neonCast,
}
