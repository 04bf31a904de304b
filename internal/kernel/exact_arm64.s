#include "textflag.h"
#include "neon_arm64.h"

#define DOT1x1 ·exact1x1NEON(SB)
#define DOT1x2 ·exact1x2NEON(SB)
#define DOT1x4 ·exact1x4NEON(SB)
#define DOT2x1 ·exact2x1NEON(SB)
#define DOT2x2 ·exact2x2NEON(SB)

#define WBITS 2
#define LOADW(r) VLD1.P 32(r), [V30.S4, V31.S4]

// Products are rounded before they are added.
#define MAC(xa, xb, a, b) \
	FMUL4(30, xa, 28); \
	FMUL4(31, xb, 29); \
	FADD4(28, a, a); \
	FADD4(29, b, b)

#include "dot_arm64.h"
