// Tiles of x·wᵀ with both operands in rows along k. The file that includes
// this one names the functions and defines WBITS, the logarithm of the bytes
// of a weight, LOADW, which puts the next eight weights of a row into V30 and
// V31, and MAC, which adds their products with registers xa, xb to a, b. Tiles of three
// rows leave MAC no register; DOT3x1 and DOT3x2 may be left out.
//
// A result has four accumulators, one for each four of the 16 lanes. A step is
// 16 elements, in two halves of eight.

#define LOADX(r, a, b) VLD1.P 32(r), [a.S4, b.S4]

#define ARGS \
	MOVD dst+0(FP), R20; \
	MOVD ldd+8(FP), R21; \
	LSL  $2, R21, R21; \
	MOVD x+16(FP), R0; \
	MOVD ldx+24(FP), R8; \
	LSL  $2, R8, R8; \
	MOVD w+32(FP), R4; \
	MOVD ldw+40(FP), R9; \
	LSL  $WBITS, R9, R9; \
	MOVD steps+48(FP), R10

#define XROW2 ADD R8, R0, R1
#define XROW3 \
	XROW2; \
	ADD R8, R1, R2
#define WROW2 ADD R9, R4, R5
#define WROW4 \
	WROW2; \
	ADD R9, R5, R6; \
	ADD R9, R6, R7

// TAIL points the rows at the packed ones, or leaves if there are none.
#define TAIL \
	MOVD xt+56(FP), R0; \
	CBZ  R0, done; \
	MOVD wt+64(FP), R4; \
	MOVD $64, R8; \
	MOVD $(16<<WBITS), R9

#define ZERO4(a, b, c, d) \
	ZERO(a); \
	ZERO(b); \
	ZERO(c); \
	ZERO(d)

// PAIR leaves the sums of two results, four lanes in registers a and b, in
// lanes 0 and 1 of register 30.
#define PAIR(va, vb, t) \
	VZIP1 vb.D2, va.D2, V30.D2; \
	VZIP2 vb.D2, va.D2, V31.D2; \
	FADD4(31, 30, t)

#define STORE1 \
	FOLD4; \
	FMOVS F0, (R20)

// STORE2 stores the sums of lanes in registers a and b to (R20).
#define STORE2(va, vb) \
	PAIR(va, vb, 30); \
	FADDP4(30, 30, 30); \
	FMOVD F30, (R20)

#define STEP1x1 \
	LOADX(R0, V24, V25); \
	LOADW(R4); \
	MAC(24, 25, 0, 1); \
	LOADX(R0, V24, V25); \
	LOADW(R4); \
	MAC(24, 25, 2, 3)

TEXT DOT1x1, NOSPLIT, $0-72
	ARGS
	ZERO4(V0, V1, V2, V3)
	CBZ  R10, tail

loop:
	STEP1x1
	SUBS $1, R10, R10
	BNE  loop

tail:
	TAIL
	STEP1x1

done:
	FOLD16(0, 1, 2, 3)
	STORE1
	RET

#define HALF1x2(a, b, c, d) \
	LOADX(R0, V24, V25); \
	LOADW(R4); \
	MAC(24, 25, a, b); \
	LOADW(R5); \
	MAC(24, 25, c, d)

#define STEP1x2 \
	HALF1x2(0, 1, 4, 5); \
	HALF1x2(2, 3, 6, 7)

TEXT DOT1x2, NOSPLIT, $0-72
	ARGS
	WROW2
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	CBZ  R10, tail

loop:
	STEP1x2
	SUBS $1, R10, R10
	BNE  loop

tail:
	TAIL
	WROW2
	STEP1x2

done:
	FOLD16(0, 1, 2, 3)
	FOLD16(4, 5, 6, 7)
	STORE2(V0, V4)
	RET

#define HALF1x4(a, b, c, d, e, f, g, h) \
	LOADX(R0, V24, V25); \
	LOADW(R4); \
	MAC(24, 25, a, b); \
	LOADW(R5); \
	MAC(24, 25, c, d); \
	LOADW(R6); \
	MAC(24, 25, e, f); \
	LOADW(R7); \
	MAC(24, 25, g, h)

#define STEP1x4 \
	HALF1x4(0, 1, 4, 5, 8, 9, 12, 13); \
	HALF1x4(2, 3, 6, 7, 10, 11, 14, 15)

TEXT DOT1x4, NOSPLIT, $0-72
	ARGS
	WROW4
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	ZERO4(V12, V13, V14, V15)
	CBZ  R10, tail

loop:
	STEP1x4
	SUBS $1, R10, R10
	BNE  loop

tail:
	TAIL
	WROW4
	STEP1x4

done:
	FOLD16(0, 1, 2, 3)
	FOLD16(4, 5, 6, 7)
	FOLD16(8, 9, 10, 11)
	FOLD16(12, 13, 14, 15)
	PAIR(V0, V4, 0)
	PAIR(V8, V12, 1)
	FADDP4(1, 0, 0)
	FMOVQ F0, (R20)
	RET

#define HALF2x1(a, b, c, d) \
	LOADX(R0, V24, V25); \
	LOADX(R1, V26, V27); \
	LOADW(R4); \
	MAC(24, 25, a, b); \
	MAC(26, 27, c, d)

#define STEP2x1 \
	HALF2x1(0, 1, 4, 5); \
	HALF2x1(2, 3, 6, 7)

TEXT DOT2x1, NOSPLIT, $0-72
	ARGS
	XROW2
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	CBZ  R10, tail

loop:
	STEP2x1
	SUBS $1, R10, R10
	BNE  loop

tail:
	TAIL
	XROW2
	STEP2x1

done:
	FOLD16(0, 1, 2, 3)
	FOLD16(4, 5, 6, 7)
	STORE1
	ADD  R21, R20, R20
	MOV4(4, 0)
	STORE1
	RET

#define HALF2x2(a, b, c, d, e, f, g, h) \
	LOADX(R0, V24, V25); \
	LOADX(R1, V26, V27); \
	LOADW(R4); \
	MAC(24, 25, a, b); \
	MAC(26, 27, e, f); \
	LOADW(R5); \
	MAC(24, 25, c, d); \
	MAC(26, 27, g, h)

#define STEP2x2 \
	HALF2x2(0, 1, 4, 5, 8, 9, 12, 13); \
	HALF2x2(2, 3, 6, 7, 10, 11, 14, 15)

TEXT DOT2x2, NOSPLIT, $0-72
	ARGS
	XROW2
	WROW2
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	ZERO4(V12, V13, V14, V15)
	CBZ  R10, tail

loop:
	STEP2x2
	SUBS $1, R10, R10
	BNE  loop

tail:
	TAIL
	XROW2
	WROW2
	STEP2x2

done:
	FOLD16(0, 1, 2, 3)
	FOLD16(4, 5, 6, 7)
	FOLD16(8, 9, 10, 11)
	FOLD16(12, 13, 14, 15)
	STORE2(V0, V4)
	ADD  R21, R20, R20
	STORE2(V8, V12)
	RET

#ifdef DOT3x1
#define HALF3x1(a, b, c, d, e, f) \
	LOADX(R0, V24, V25); \
	LOADX(R1, V26, V27); \
	LOADX(R2, V28, V29); \
	LOADW(R4); \
	MAC(24, 25, a, b); \
	MAC(26, 27, c, d); \
	MAC(28, 29, e, f)

#define STEP3x1 \
	HALF3x1(0, 1, 4, 5, 8, 9); \
	HALF3x1(2, 3, 6, 7, 10, 11)

TEXT DOT3x1, NOSPLIT, $0-72
	ARGS
	XROW3
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	CBZ  R10, tail

loop:
	STEP3x1
	SUBS $1, R10, R10
	BNE  loop

tail:
	TAIL
	XROW3
	STEP3x1

done:
	FOLD16(0, 1, 2, 3)
	FOLD16(4, 5, 6, 7)
	FOLD16(8, 9, 10, 11)
	STORE1
	ADD  R21, R20, R20
	MOV4(4, 0)
	STORE1
	ADD  R21, R20, R20
	MOV4(8, 0)
	STORE1
	RET

#define HALF3x2(a, b, c, d, e, f, g, h, i, j, k, l) \
	LOADX(R0, V24, V25); \
	LOADX(R1, V26, V27); \
	LOADX(R2, V28, V29); \
	LOADW(R4); \
	MAC(24, 25, a, b); \
	MAC(26, 27, e, f); \
	MAC(28, 29, i, j); \
	LOADW(R5); \
	MAC(24, 25, c, d); \
	MAC(26, 27, g, h); \
	MAC(28, 29, k, l)

#define STEP3x2 \
	HALF3x2(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21); \
	HALF3x2(2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23)

TEXT DOT3x2, NOSPLIT, $0-72
	ARGS
	XROW3
	WROW2
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	ZERO4(V12, V13, V14, V15)
	ZERO4(V16, V17, V18, V19)
	ZERO4(V20, V21, V22, V23)
	CBZ  R10, tail

loop:
	STEP3x2
	SUBS $1, R10, R10
	BNE  loop

tail:
	TAIL
	XROW3
	WROW2
	STEP3x2

done:
	FOLD16(0, 1, 2, 3)
	FOLD16(4, 5, 6, 7)
	FOLD16(8, 9, 10, 11)
	FOLD16(12, 13, 14, 15)
	FOLD16(16, 17, 18, 19)
	FOLD16(20, 21, 22, 23)
	STORE2(V0, V4)
	ADD  R21, R20, R20
	STORE2(V8, V12)
	ADD  R21, R20, R20
	STORE2(V16, V20)
	RET
#endif
