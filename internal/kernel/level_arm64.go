package kernel

// neonLevel has the hand-written functions; what has none runs in Go.
var neonLevel = func() level {
	l := genericLevel
	l.name = "neon"
	l.f16 = dotTiles[uint16]{
		1: {1: dot1x1F16NEON, 2: dot1x2F16NEON, 4: dot1x4F16NEON},
		2: {1: dot2x1F16NEON, 2: dot2x2F16NEON},
		3: {1: dot3x1F16NEON, 2: dot3x2F16NEON},
	}
	l.f32 = dotTiles[float32]{
		1: {1: dot1x1F32NEON, 2: dot1x2F32NEON, 4: dot1x4F32NEON},
		2: {1: dot2x1F32NEON, 2: dot2x2F32NEON},
		3: {1: dot3x1F32NEON, 2: dot3x2F32NEON},
	}
	l.outer = outerTiles{
		1: {{64, outer1x64NEON}, {16, outer1x16NEON}, {4, outer1x4NEON}},
		2: {{32, outer2x32NEON}, {4, outer2x4NEON}},
		3: {{16, outer3x16NEON}, {4, outer3x4NEON}},
		4: {{16, outer4x16NEON}, {4, outer4x4NEON}},
	}
	l.outerAdd = outerTiles{
		1: {{64, outerAdd1x64NEON}, {16, outerAdd1x16NEON}, {4, outerAdd1x4NEON}},
		2: {{32, outerAdd2x32NEON}, {4, outerAdd2x4NEON}},
		3: {{16, outerAdd3x16NEON}, {4, outerAdd3x4NEON}},
		4: {{16, outerAdd4x16NEON}, {4, outerAdd4x4NEON}},
	}
	l.panel = &panelNEON
	l.packed = neonPacked
	l.f16ToF32 = f16ToF32NEON
	l.f32ToF16 = f32ToF16NEON
	l.roundF16 = roundF16NEON
	l.diffF16 = diffF16NEON
	l.add = addNEON
	l.sub = subNEON
	l.mul = mulNEON
	l.addScalar = addScalarNEON
	l.mulScalar = mulScalarNEON
	l.scaleMul = scaleMulNEON
	l.sumSquares = sumSquaresNEON
	l.maxOf = maxOfNEON
	l.expShift = expShiftNEON
	l.silu = siluNEON
	l.geluTanh = geluTanhNEON
	l.cast = &neonCast
	return l
}()
