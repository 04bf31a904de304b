#include "textflag.h"
#include "neon_arm64.h"

// All take n, a multiple of 16, and do 16 elements in a step.

#define SHLL16(n, d) WORD $(0x2E613800 | (n)<<5 | (d)) // lower four halves, shifted up
#define SHLL16HIGH(n, d) WORD $(0x6E613800 | (n)<<5 | (d))
#define UMAX4(m, n, d) WORD $(0x6EA06400 | (m)<<16 | (n)<<5 | (d))
#define UMAXV4(n, d) WORD $(0x6EB0A800 | (n)<<5 | (d))
#define UMAX8(m, n, d) WORD $(0x6E606400 | (m)<<16 | (n)<<5 | (d)) // eight lanes of 16 bits
#define UMAXV8(n, d) WORD $(0x6E70A800 | (n)<<5 | (d))
#define FABS4(n, d) WORD $(0x4EA0F800 | (n)<<5 | (d))

TEXT ·bf16ToF32NEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R3
	CBZ  R3, done

loop:
	VLD1.P 32(R1), [V0.H8, V1.H8]
	SHLL16(0, 4)
	SHLL16HIGH(0, 5)
	SHLL16(1, 6)
	SHLL16HIGH(1, 7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	SUBS   $16, R3, R3
	BNE    loop

done:
	RET

// PEAK keeps the largest magnitudes of a register in acc. FABS clears the sign
// bit and nothing else, of NaN too.
#define PEAK(n, t, acc) \
	FABS4(n, t); \
	UMAX4(t, acc, acc)

TEXT ·bf16ToF16NEON(SB), NOSPLIT, $0-36
	MOVD  dst+0(FP), R0
	MOVD  src+8(FP), R1
	MOVWU scale+16(FP), R2
	MOVD  n+24(FP), R3
	VDUP  R2, V8.S4
	ZERO(V16)
	ZERO(V17)
	CBZ   R3, done

loop:
	VLD1.P 32(R1), [V0.H8, V1.H8]
	SHLL16(0, 4)
	SHLL16HIGH(0, 5)
	SHLL16(1, 6)
	SHLL16HIGH(1, 7)
	FMUL4(8, 4, 4)
	FMUL4(8, 5, 5)
	FMUL4(8, 6, 6)
	FMUL4(8, 7, 7)
	PEAK(4, 9, 16)
	PEAK(5, 10, 17)
	PEAK(6, 9, 16)
	PEAK(7, 10, 17)
	FCVTN(4, 0)
	FCVTN2(5, 0)
	FCVTN(6, 1)
	FCVTN2(7, 1)
	VST1.P [V0.H8, V1.H8], 32(R0)
	SUBS   $16, R3, R3
	BNE    loop

done:
	UMAX4(17, 16, 16)
	UMAXV4(16, 16)
	FMOVS F16, ret+32(FP)
	RET

TEXT ·maxBitsNEON(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R1
	MOVD n+8(FP), R3
	ZERO(V16)
	ZERO(V17)
	CBZ  R3, done

loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	PEAK(0, 4, 16)
	PEAK(1, 5, 17)
	PEAK(2, 6, 16)
	PEAK(3, 7, 17)
	SUBS   $16, R3, R3
	BNE    loop

done:
	UMAX4(17, 16, 16)
	UMAXV4(16, 16)
	FMOVS F16, ret+16(FP)
	RET

TEXT ·maxBits16NEON(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R1
	MOVD n+8(FP), R3
	MOVD $0x7fff, R2
	VDUP R2, V8.H8
	ZERO(V16)
	ZERO(V17)
	CBZ  R3, done

loop:
	VLD1.P 32(R1), [V0.H8, V1.H8]
	VAND V8.B16, V0.B16, V0.B16
	VAND V8.B16, V1.B16, V1.B16
	UMAX8(0, 16, 16)
	UMAX8(1, 17, 17)
	SUBS $16, R3, R3
	BNE  loop

done:
	UMAX8(17, 16, 16)
	UMAXV8(16, 16)
	FMOVS F16, ret+16(FP)
	RET
