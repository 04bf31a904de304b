#include "textflag.h"
#include "neon_arm64.h"

// All take n, a multiple of 16, and do 16 elements in a step. The conversions
// round to nearest, ties to even, and keep subnormals: FPCR as Go leaves it.

TEXT ·f16ToF32NEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R3
	CBZ  R3, done

loop:
	VLD1.P 32(R1), [V0.H8, V1.H8]
	FCVTL(0, 4)
	FCVTL2(0, 5)
	FCVTL(1, 6)
	FCVTL2(1, 7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	SUBS   $16, R3, R3
	BNE    loop

done:
	RET

// NARROW rounds V0 to V3 to halves in V4 and V5.
#define NARROW \
	FCVTN(0, 4); \
	FCVTN2(1, 4); \
	FCVTN(2, 5); \
	FCVTN2(3, 5)

#define WIDEN(a, b, c, d) \
	FCVTL(4, a); \
	FCVTL2(4, b); \
	FCVTL(5, c); \
	FCVTL2(5, d)

TEXT ·f32ToF16NEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R3
	CBZ  R3, done

loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	NARROW
	VST1.P [V4.H8, V5.H8], 32(R0)
	SUBS   $16, R3, R3
	BNE    loop

done:
	RET

TEXT ·roundF16NEON(SB), NOSPLIT, $0-16
	MOVD x+0(FP), R1
	MOVD n+8(FP), R3
	CBZ  R3, done

loop:
	VLD1 (R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	NARROW
	WIDEN(0, 1, 2, 3)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R1)
	SUBS   $16, R3, R3
	BNE    loop

done:
	RET

#define DIFF(v, w, acc) \
	VEOR v.B16, w.B16, w.B16; \
	VORR w.B16, acc.B16, acc.B16

TEXT ·diffF16NEON(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R1
	MOVD n+8(FP), R3
	ZERO(V16)
	ZERO(V17)
	CBZ  R3, done

loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	NARROW
	WIDEN(8, 9, 10, 11)
	DIFF(V0, V8, V16)
	DIFF(V1, V9, V17)
	DIFF(V2, V10, V16)
	DIFF(V3, V11, V17)
	SUBS $16, R3, R3
	BNE  loop

done:
	VORR V17.B16, V16.B16, V16.B16
	VMOV V16.D[0], R0
	VMOV V16.D[1], R1
	ORR  R1, R0, R0
	ORR  R0>>32, R0, R0
	MOVW R0, ret+16(FP)
	RET
