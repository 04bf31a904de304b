#include "textflag.h"
#include "neon_arm64.h"

// Constants of EXP in V16 to V29, then those of gelu.
DATA expConst<>+0(SB)/4, $0xc2d00000  // -104
DATA expConst<>+4(SB)/4, $0x42b20000  // 89
DATA expConst<>+8(SB)/4, $0x3fb8aa3b  // log₂e
DATA expConst<>+12(SB)/4, $0x3f317200 // ln2, upper bits
DATA expConst<>+16(SB)/4, $0x35bfbe8e // ln2, the rest
DATA expConst<>+20(SB)/4, $0x39500d01 // 1/7!
DATA expConst<>+24(SB)/4, $0x3ab60b61 // 1/6!
DATA expConst<>+28(SB)/4, $0x3c088889 // 1/5!
DATA expConst<>+32(SB)/4, $0x3d2aaaab // 1/4!
DATA expConst<>+36(SB)/4, $0x3e2aaaab // 1/3!
DATA expConst<>+40(SB)/4, $0x3f000000 // 1/2!
DATA expConst<>+44(SB)/4, $0x3f800000 // 1
DATA expConst<>+48(SB)/4, $0x3f800000 // 1
DATA expConst<>+52(SB)/4, $127        // exponent bias
DATA expConst<>+56(SB)/4, $0x3fcc422a // 2√(2/π)
DATA expConst<>+60(SB)/4, $0x3d922279 // 2√(2/π)·0.044715
GLOBL expConst<>(SB), RODATA|NOPTR, $64

#define CONST(v) VLD1R.P 4(R5), [v.S4]

#define EXPCONST \
	MOVD $expConst<>(SB), R5; \
	CONST(V16); \
	CONST(V17); \
	CONST(V18); \
	CONST(V19); \
	CONST(V20); \
	CONST(V21); \
	CONST(V22); \
	CONST(V23); \
	CONST(V24); \
	CONST(V25); \
	CONST(V26); \
	CONST(V27); \
	CONST(V28); \
	CONST(V29)

// EXP is v = eᵛ with scratch registers n, p, t: n = round(v·log₂e), a
// polynomial of degree 7 on the remainder, and two multiplications by powers
// of two, so that subnormal results round once. Below -104 the result is 0,
// above 88.73 infinity; NaN stays NaN.
#define EXP(v, n, p, t) \
	FMIN4(17, v, v); \
	FMAX4(16, v, v); \
	FMUL4(18, v, n); \
	FRINTN4(n, n); \
	FMLS4(19, n, v); \
	FMLS4(20, n, v); \
	MOV4(22, p); \
	FMLA4(21, v, p); \
	MOV4(23, t); \
	FMLA4(p, v, t); \
	MOV4(24, p); \
	FMLA4(t, v, p); \
	MOV4(25, t); \
	FMLA4(p, v, t); \
	MOV4(26, p); \
	FMLA4(t, v, p); \
	MOV4(27, t); \
	FMLA4(p, v, t); \
	MOV4(28, p); \
	FMLA4(t, v, p); \
	FCVTNS4(n, n); \
	HALVE4(n, t); \
	SUB4(t, n, n); \
	ADD4(29, t, t); \
	SHL23(t, t); \
	FMUL4(t, p, p); \
	ADD4(29, n, n); \
	SHL23(n, n); \
	FMUL4(n, p, v)

TEXT ·expShiftNEON(SB), NOSPLIT, $0-36
	MOVD  dst+0(FP), R0
	MOVD  x+8(FP), R1
	MOVWU c+16(FP), R2
	MOVD  n+24(FP), R3
	VDUP  R2, V30.S4
	EXPCONST
	ZERO(V4)
	ZERO(V5)
	ZERO(V6)
	ZERO(V7)
	CBZ   R3, done

loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	FSUB4(30, 0, 0)
	FSUB4(30, 1, 1)
	FSUB4(30, 2, 2)
	FSUB4(30, 3, 3)
	EXP(0, 8, 9, 10)
	EXP(1, 11, 12, 13)
	EXP(2, 8, 9, 10)
	EXP(3, 11, 12, 13)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	FADD4(0, 4, 4)
	FADD4(1, 5, 5)
	FADD4(2, 6, 6)
	FADD4(3, 7, 7)
	SUBS   $16, R3, R3
	BNE    loop

done:
	FOLD16(4, 5, 6, 7)
	MOV4(4, 0)
	FOLD4
	FMOVS F0, ret+32(FP)
	RET

// GATE is x = x/(1+e⁻ʸ); 1 is in V27.
#define GATE(x, y, n, p, t) \
	FNEG4(y, y); \
	EXP(y, n, p, t); \
	FADD4(27, y, y); \
	FDIV4(y, x, x)

#define SILU(x, y, n, p, t) \
	MOV4(x, y); \
	GATE(x, y, n, p, t)

// GELU has y = x·(b·x²+a), with a and b in V30 and V31.
#define GELU(x, y, n, p, t) \
	FMUL4(x, x, n); \
	MOV4(30, y); \
	FMLA4(n, 31, y); \
	FMUL4(x, y, y); \
	GATE(x, y, n, p, t)

#define ACTIVATION(OP) \
	CBZ    R3, done; \
loop: \
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]; \
	OP(0, 4, 8, 9, 10); \
	OP(1, 5, 11, 12, 13); \
	OP(2, 6, 8, 9, 10); \
	OP(3, 7, 11, 12, 13); \
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0); \
	SUBS   $16, R3, R3; \
	BNE    loop; \
done: \
	RET

TEXT ·siluNEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD x+8(FP), R1
	MOVD n+16(FP), R3
	EXPCONST
	ACTIVATION(SILU)

TEXT ·geluTanhNEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD x+8(FP), R1
	MOVD n+16(FP), R3
	EXPCONST
	CONST(V30)
	CONST(V31)
	ACTIVATION(GELU)
