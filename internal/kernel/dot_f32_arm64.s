#include "textflag.h"
#include "neon_arm64.h"

#define DOT1x1 ·dot1x1F32NEON(SB)
#define DOT1x2 ·dot1x2F32NEON(SB)
#define DOT1x4 ·dot1x4F32NEON(SB)
#define DOT2x1 ·dot2x1F32NEON(SB)
#define DOT2x2 ·dot2x2F32NEON(SB)
#define DOT3x1 ·dot3x1F32NEON(SB)
#define DOT3x2 ·dot3x2F32NEON(SB)

#define WBITS 2
#define LOADW(r) VLD1.P 32(r), [V30.S4, V31.S4]

#define MAC(xa, xb, a, b) \
	FMLA4(30, xa, a); \
	FMLA4(31, xb, b)

#include "dot_arm64.h"
