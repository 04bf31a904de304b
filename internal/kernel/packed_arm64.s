#include "textflag.h"
#include "neon_arm64.h"

// Products of a vector and a row of codes, and decoders of a row: 16 elements
// a step. They read packedArgs.

#define SCVTF4(n, d) WORD $(0x4E21D800 | (n)<<5 | (d))
#define SXTL8(n, d) WORD $(0x0F08A400 | (n)<<5 | (d)) // lower eight bytes to 16 bits
#define SXTL8HIGH(n, d) WORD $(0x4F08A400 | (n)<<5 | (d))
#define UXTL8(n, d) WORD $(0x2F08A400 | (n)<<5 | (d))
#define UXTL8HIGH(n, d) WORD $(0x6F08A400 | (n)<<5 | (d))
#define SXTL16(n, d) WORD $(0x0F10A400 | (n)<<5 | (d)) // lower four to 32 bits
#define SXTL16HIGH(n, d) WORD $(0x4F10A400 | (n)<<5 | (d))

// Bits of flags, and the rounding that F16 or BF16 stands for.
#define OFFSET 0
#define BIAS 1
#define TO_F16 2
#define TO_BF16 3

// ARGS has activations or the result in R1, codes in R2, scales in R3, offsets
// or biases in R4, the table in R5, blocks in R6, steps in R7, flags in R8.
#define ARGS(out) \
	MOVD  a+0(FP), R0; \
	MOVD  out(R0), R1; \
	MOVD  24(R0), R2; \
	MOVD  64(R0), R3; \
	MOVD  80(R0), R4; \
	ADD   R3, R4, R4; \
	MOVD  40(R0), R5; \
	MOVD  88(R0), R6; \
	MOVD  96(R0), R7; \
	MOVD  120(R0), R8

#define ARG_X 16
#define ARG_DST 0

// ROUNDCONST prepares rounding to bfloat16 in V28 to V30, and a mask of a
// nibble in V31.
#define ROUNDCONST \
	VMOVI $15, V31.B16; \
	MOVD  $1, R9; \
	VDUP  R9, V28.S4; \
	MOVD  $0x7fff, R9; \
	VDUP  R9, V29.S4; \
	MOVD  $0xffff0000, R9; \
	VDUP  R9, V30.S4

#define ROUNDBF16(v) \
	VUSHR $16, v.S4, V10.S4; \
	VAND  V28.B16, V10.B16, V10.B16; \
	VADD  V29.S4, V10.S4, V10.S4; \
	VADD  V10.S4, v.S4, v.S4; \
	VAND  V30.B16, v.B16, v.B16

// ROUND rounds V20 to V23.
#define ROUND(notF16, done) \
	TBZ $TO_F16, R8, notF16; \
	FCVTN(20, 10); \
	FCVTN2(21, 10); \
	FCVTN(22, 11); \
	FCVTN2(23, 11); \
	FCVTL(10, 20); \
	FCVTL2(10, 21); \
	FCVTL(11, 22); \
	FCVTL2(11, 23); \
	B   done; \
notF16: \
	TBZ $TO_BF16, R8, done; \
	ROUNDBF16(V20); \
	ROUNDBF16(V21); \
	ROUNDBF16(V22); \
	ROUNDBF16(V23); \
done:

// EACH applies an operation with register m to V20 to V23.
#define EACH(OP, m) \
	OP(m, 20, 20); \
	OP(m, 21, 21); \
	OP(m, 22, 22); \
	OP(m, 23, 23)

// BLOCK loads the numbers of a block into V8 and V9.
#define BLOCK \
	VLD1R.P 4(R3), [V8.S4]; \
	TST     $(1<<OFFSET | 1<<BIAS), R8; \
	BEQ     plain; \
	VLD1R.P 4(R4), [V9.S4]; \
plain:

// NUMBERS turns codes or levels in V20 to V23 into numbers of a block.
#define NUMBERS \
	TBZ  $OFFSET, R8, scale; \
	EACH(FSUB4, 9); \
scale: \
	EACH(FMUL4, 8); \
	ROUND(notF16a, rounded); \
	TBZ  $BIAS, R8, numbers; \
	EACH(FADD4, 9); \
	ROUND(notF16b, numbers)

// PRODUCT adds products of V20 to V23 and activations to V0 to V3.
#define PRODUCT \
	VLD1.P 64(R1), [V24.S4, V25.S4, V26.S4, V27.S4]; \
	FMLA4(20, 24, 0); \
	FMLA4(21, 25, 1); \
	FMLA4(22, 26, 2); \
	FMLA4(23, 27, 3)

#define STORE VST1.P [V20.S4, V21.S4, V22.S4, V23.S4], 64(R1)

#define ZEROS \
	ZERO(V0); \
	ZERO(V1); \
	ZERO(V2); \
	ZERO(V3)

#define SUM \
	FOLD16(0, 1, 2, 3); \
	FOLD4; \
	MOVD  ARG_DST(R0), R1; \
	FMOVS F0, (R1)

// PLANES cuts a table of 16 numbers, V20 to V23, into four of bytes: V12 has
// the lowest bytes, V15 the highest.
#define PLANES \
	VUZP1 V21.H8, V20.H8, V12.H8; \
	VUZP1 V23.H8, V22.H8, V13.H8; \
	VUZP2 V21.H8, V20.H8, V14.H8; \
	VUZP2 V23.H8, V22.H8, V15.H8; \
	VUZP1 V13.B16, V12.B16, V16.B16; \
	VUZP2 V13.B16, V12.B16, V13.B16; \
	VUZP1 V15.B16, V14.B16, V17.B16; \
	VUZP2 V15.B16, V14.B16, V15.B16; \
	VMOV  V16.B16, V12.B16; \
	VMOV  V17.B16, V14.B16

// LOOKUP puts the entries of 16 nibbles into V20 to V23: each plane is looked
// up, and bytes of an entry are brought together.
#define LOOKUP \
	VLD1.P 8(R2), [V16.B8]; \
	VUSHR  $4, V16.B16, V17.B16; \
	VAND   V31.B16, V16.B16, V16.B16; \
	VZIP1  V17.B16, V16.B16, V16.B16; \
	VTBL   V16.B16, [V12.B16], V17.B16; \
	VTBL   V16.B16, [V13.B16], V18.B16; \
	VTBL   V16.B16, [V14.B16], V19.B16; \
	VTBL   V16.B16, [V15.B16], V16.B16; \
	VZIP1  V18.B16, V17.B16, V24.B16; \
	VZIP2  V18.B16, V17.B16, V25.B16; \
	VZIP1  V16.B16, V19.B16, V26.B16; \
	VZIP2  V16.B16, V19.B16, V27.B16; \
	VZIP1  V26.H8, V24.H8, V20.H8; \
	VZIP2  V26.H8, V24.H8, V21.H8; \
	VZIP1  V27.H8, V25.H8, V22.H8; \
	VZIP2  V27.H8, V25.H8, V23.H8

#define TABLE VLD1 (R5), [V20.S4, V21.S4, V22.S4, V23.S4]

#define STEPS(VALUES, USE) \
	MOVD R7, R9; \
step: \
	VALUES; \
	USE; \
	SUBS $1, R9, R9; \
	BNE  step

#define SCALED4(USE) \
	ROUNDCONST; \
block: \
	BLOCK; \
	TABLE; \
	NUMBERS; \
	PLANES; \
	STEPS(LOOKUP, USE); \
	SUBS $1, R6, R6; \
	BNE  block

TEXT ·decodeLUT4NEON(SB), NOSPLIT, $0-8
	ARGS(ARG_DST)
	ROUNDCONST
	TABLE
	PLANES
	STEPS(LOOKUP, STORE)
	RET

TEXT ·dot1x1LUT4NEON(SB), NOSPLIT, $0-8
	ARGS(ARG_X)
	ROUNDCONST
	ZEROS
	TABLE
	PLANES
	STEPS(LOOKUP, PRODUCT)
	SUM
	RET

TEXT ·decodeScaled4NEON(SB), NOSPLIT, $0-8
	ARGS(ARG_DST)
	SCALED4(STORE)
	RET

TEXT ·dot1x1Scaled4NEON(SB), NOSPLIT, $0-8
	ARGS(ARG_X)
	ZEROS
	SCALED4(PRODUCT)
	SUM
	RET

#define FLOATS \
	SXTL16(17, 20); \
	SXTL16HIGH(17, 21); \
	SXTL16(18, 22); \
	SXTL16HIGH(18, 23); \
	SCVTF4(20, 20); \
	SCVTF4(21, 21); \
	SCVTF4(22, 22); \
	SCVTF4(23, 23); \
	NUMBERS

#define SIGNED \
	VLD1.P 16(R2), [V16.B16]; \
	SXTL8(16, 17); \
	SXTL8HIGH(16, 18); \
	FLOATS

#define UNSIGNED \
	VLD1.P 16(R2), [V16.B16]; \
	UXTL8(16, 17); \
	UXTL8HIGH(16, 18); \
	FLOATS

#define BYTES(VALUES, USE) \
	ROUNDCONST; \
block: \
	BLOCK; \
	STEPS(VALUES, USE); \
	SUBS $1, R6, R6; \
	BNE  block

TEXT ·decodeI8NEON(SB), NOSPLIT, $0-8
	ARGS(ARG_DST)
	BYTES(SIGNED, STORE)
	RET

TEXT ·dot1x1I8NEON(SB), NOSPLIT, $0-8
	ARGS(ARG_X)
	ZEROS
	BYTES(SIGNED, PRODUCT)
	SUM
	RET

TEXT ·decodeU8NEON(SB), NOSPLIT, $0-8
	ARGS(ARG_DST)
	BYTES(UNSIGNED, STORE)
	RET

TEXT ·dot1x1U8NEON(SB), NOSPLIT, $0-8
	ARGS(ARG_X)
	ZEROS
	BYTES(UNSIGNED, PRODUCT)
	SUM
	RET
