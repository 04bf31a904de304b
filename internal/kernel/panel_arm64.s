#include "textflag.h"
#include "neon_arm64.h"

// Tiles of packed panels, 16 columns wide. Row i of a tile is summed in V4·i to
// V4·i+3; columns of b are V24 to V27, an element of a V28 or V29.

#define ARGS \
	MOVD dst+0(FP), R0; \
	MOVD ldd+8(FP), R8; \
	LSL  $2, R8, R8; \
	MOVD a+16(FP), R1; \
	MOVD lda+24(FP), R9; \
	LSL  $2, R9, R9; \
	MOVD b+32(FP), R2; \
	MOVD steps+40(FP), R3; \
	MOVD top+48(FP), R4; \
	MOVD merges+56(FP), R5

#define ZERO4(a, b, c, d) \
	ZERO(a); \
	ZERO(b); \
	ZERO(c); \
	ZERO(d)

#define LOADB VLD1.P 64(R2), [V24.S4, V25.S4, V26.S4, V27.S4]

#define MAC(v, n, to) \
	VLD1R.P 4(R7), [v.S4]; \
	FMLA4(24, n, (to)); \
	FMLA4(25, n, (to+1)); \
	FMLA4(26, n, (to+2)); \
	FMLA4(27, n, (to+3))

#define MERGE(to) \
	VLD1.P 64(R6), [V24.S4, V25.S4, V26.S4, V27.S4]; \
	FADD4(24, (to), (to)); \
	FADD4(25, (to+1), (to+1)); \
	FADD4(26, (to+2), (to+2)); \
	FADD4(27, (to+3), (to+3))

#define STORE(a, b, c, d) \
	VST1 [a.S4, b.S4, c.S4, d.S4], (R0); \
	ADD  R8, R0, R0

// SLOT is the size of a tile of 6 rows.
#define SLOT 384

TEXT ·panel3NEON(SB), NOSPLIT, $0-64
	ARGS
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)

loop:
	LOADB
	MOVD R1, R7
	ADD  R9, R1, R1
	MAC(V28, 28, 0)
	MAC(V29, 29, 4)
	MAC(V28, 28, 8)
	SUBS $1, R3, R3
	BNE  loop

merge:
	CBZ R5, store
	MOVD R4, R6
	MERGE(0)
	MERGE(4)
	MERGE(8)
	SUB $SLOT, R4, R4
	SUB $1, R5, R5
	B   merge

store:
	STORE(V0, V1, V2, V3)
	STORE(V4, V5, V6, V7)
	STORE(V8, V9, V10, V11)
	RET

TEXT ·panel4NEON(SB), NOSPLIT, $0-64
	ARGS
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	ZERO4(V12, V13, V14, V15)

loop:
	LOADB
	MOVD R1, R7
	ADD  R9, R1, R1
	MAC(V28, 28, 0)
	MAC(V29, 29, 4)
	MAC(V28, 28, 8)
	MAC(V29, 29, 12)
	SUBS $1, R3, R3
	BNE  loop

merge:
	CBZ R5, store
	MOVD R4, R6
	MERGE(0)
	MERGE(4)
	MERGE(8)
	MERGE(12)
	SUB $SLOT, R4, R4
	SUB $1, R5, R5
	B   merge

store:
	STORE(V0, V1, V2, V3)
	STORE(V4, V5, V6, V7)
	STORE(V8, V9, V10, V11)
	STORE(V12, V13, V14, V15)
	RET

TEXT ·panel5NEON(SB), NOSPLIT, $0-64
	ARGS
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	ZERO4(V12, V13, V14, V15)
	ZERO4(V16, V17, V18, V19)

loop:
	LOADB
	MOVD R1, R7
	ADD  R9, R1, R1
	MAC(V28, 28, 0)
	MAC(V29, 29, 4)
	MAC(V28, 28, 8)
	MAC(V29, 29, 12)
	MAC(V28, 28, 16)
	SUBS $1, R3, R3
	BNE  loop

merge:
	CBZ R5, store
	MOVD R4, R6
	MERGE(0)
	MERGE(4)
	MERGE(8)
	MERGE(12)
	MERGE(16)
	SUB $SLOT, R4, R4
	SUB $1, R5, R5
	B   merge

store:
	STORE(V0, V1, V2, V3)
	STORE(V4, V5, V6, V7)
	STORE(V8, V9, V10, V11)
	STORE(V12, V13, V14, V15)
	STORE(V16, V17, V18, V19)
	RET

TEXT ·panel6NEON(SB), NOSPLIT, $0-64
	ARGS
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	ZERO4(V12, V13, V14, V15)
	ZERO4(V16, V17, V18, V19)
	ZERO4(V20, V21, V22, V23)

loop:
	LOADB
	MOVD R1, R7
	ADD  R9, R1, R1
	MAC(V28, 28, 0)
	MAC(V29, 29, 4)
	MAC(V28, 28, 8)
	MAC(V29, 29, 12)
	MAC(V28, 28, 16)
	MAC(V29, 29, 20)
	SUBS $1, R3, R3
	BNE  loop

merge:
	CBZ R5, store
	MOVD R4, R6
	MERGE(0)
	MERGE(4)
	MERGE(8)
	MERGE(12)
	MERGE(16)
	MERGE(20)
	SUB $SLOT, R4, R4
	SUB $1, R5, R5
	B   merge

store:
	STORE(V0, V1, V2, V3)
	STORE(V4, V5, V6, V7)
	STORE(V8, V9, V10, V11)
	STORE(V12, V13, V14, V15)
	STORE(V16, V17, V18, V19)
	STORE(V20, V21, V22, V23)
	RET
