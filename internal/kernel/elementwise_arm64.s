#include "textflag.h"
#include "neon_arm64.h"

// All take n, a multiple of 16, and do 16 elements in a step.

#define LOAD16(r) VLD1.P 64(r), [V0.S4, V1.S4, V2.S4, V3.S4]
#define LOADB16(r) VLD1.P 64(r), [V4.S4, V5.S4, V6.S4, V7.S4]
#define STORE16(r) VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(r)

#define BINARY(OP) \
	MOVD dst+0(FP), R0; \
	MOVD a+8(FP), R1; \
	MOVD b+16(FP), R2; \
	MOVD n+24(FP), R3; \
	CBZ  R3, done; \
loop: \
	LOAD16(R1); \
	LOADB16(R2); \
	OP(4, 0, 0); \
	OP(5, 1, 1); \
	OP(6, 2, 2); \
	OP(7, 3, 3); \
	STORE16(R0); \
	SUBS $16, R3, R3; \
	BNE  loop; \
done: \
	RET

#define SCALAR(OP) \
	MOVD  dst+0(FP), R0; \
	MOVD  a+8(FP), R1; \
	MOVWU c+16(FP), R2; \
	MOVD  n+24(FP), R3; \
	VDUP  R2, V4.S4; \
	CBZ   R3, done; \
loop: \
	LOAD16(R1); \
	OP(4, 0, 0); \
	OP(4, 1, 1); \
	OP(4, 2, 2); \
	OP(4, 3, 3); \
	STORE16(R0); \
	SUBS $16, R3, R3; \
	BNE  loop; \
done: \
	RET

#define SCALEMUL(b, d) \
	FMUL4(8, d, d); \
	FMUL4(b, d, d)

// MAX replaces lanes of m by greater ones of v. NaN is not greater.
#define MAX(v, m, vv, vm) \
	FCMGT4(m, v, 8); \
	VBIT V8.B16, vv.B16, vm.B16

TEXT ·addNEON(SB), NOSPLIT, $0-32
	BINARY(FADD4)

TEXT ·subNEON(SB), NOSPLIT, $0-32
	BINARY(FSUB4)

TEXT ·mulNEON(SB), NOSPLIT, $0-32
	BINARY(FMUL4)

TEXT ·addScalarNEON(SB), NOSPLIT, $0-32
	SCALAR(FADD4)

TEXT ·mulScalarNEON(SB), NOSPLIT, $0-32
	SCALAR(FMUL4)

TEXT ·scaleMulNEON(SB), NOSPLIT, $0-40
	MOVD  dst+0(FP), R0
	MOVD  a+8(FP), R1
	MOVD  b+16(FP), R2
	MOVWU c+24(FP), R4
	MOVD  n+32(FP), R3
	VDUP  R4, V8.S4
	CBZ   R3, done

loop:
	LOAD16(R1)
	LOADB16(R2)
	SCALEMUL(4, 0)
	SCALEMUL(5, 1)
	SCALEMUL(6, 2)
	SCALEMUL(7, 3)
	STORE16(R0)
	SUBS $16, R3, R3
	BNE  loop

done:
	RET

TEXT ·sumSquaresNEON(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R1
	MOVD n+8(FP), R3
	ZERO(V4)
	ZERO(V5)
	ZERO(V6)
	ZERO(V7)
	CBZ  R3, done

loop:
	LOAD16(R1)
	FMLA4(0, 0, 4)
	FMLA4(1, 1, 5)
	FMLA4(2, 2, 6)
	FMLA4(3, 3, 7)
	SUBS $16, R3, R3
	BNE  loop

done:
	FOLD16(4, 5, 6, 7)
	MOV4(4, 0)
	FOLD4
	FMOVS F0, ret+16(FP)
	RET

TEXT ·maxOfNEON(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R1
	MOVD n+8(FP), R3
	MOVD $0xff800000, R2
	VDUP R2, V4.S4
	VDUP R2, V5.S4
	VDUP R2, V6.S4
	VDUP R2, V7.S4
	CBZ  R3, done

loop:
	LOAD16(R1)
	MAX(0, 4, V0, V4)
	MAX(1, 5, V1, V5)
	MAX(2, 6, V2, V6)
	MAX(3, 7, V3, V7)
	SUBS $16, R3, R3
	BNE  loop

done:
	MAX(5, 4, V5, V4)
	MAX(7, 6, V7, V6)
	MAX(6, 4, V6, V4)
	VEXT $8, V4.B16, V4.B16, V5.B16
	MAX(5, 4, V5, V4)
	VEXT $4, V4.B16, V4.B16, V5.B16
	MAX(5, 4, V5, V4)
	FMOVS F4, ret+16(FP)
	RET
