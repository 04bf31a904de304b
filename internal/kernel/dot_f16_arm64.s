#include "textflag.h"
#include "neon_arm64.h"

#define DOT1x1 ·dot1x1F16NEON(SB)
#define DOT1x2 ·dot1x2F16NEON(SB)
#define DOT1x4 ·dot1x4F16NEON(SB)
#define DOT2x1 ·dot2x1F16NEON(SB)
#define DOT2x2 ·dot2x2F16NEON(SB)
#define DOT3x1 ·dot3x1F16NEON(SB)
#define DOT3x2 ·dot3x2F16NEON(SB)

#define WBITS 1
#define LOADW(r) \
	VLD1.P 16(r), [V30.H8]; \
	FCVTL2(30, 31); \
	FCVTL(30, 30)

#define MAC(xa, xb, a, b) \
	FMLA4(30, xa, a); \
	FMLA4(31, xb, b)

#include "dot_arm64.h"
