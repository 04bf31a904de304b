#include "textflag.h"
#include "neon_arm64.h"

#define OUTER1x64 ·outer1x64NEON(SB)
#define OUTER1x16 ·outer1x16NEON(SB)
#define OUTER2x32 ·outer2x32NEON(SB)
#define OUTER3x16 ·outer3x16NEON(SB)
#define OUTER4x16 ·outer4x16NEON(SB)
#define OUTER1x4 ·outer1x4NEON(SB)
#define OUTER2x4 ·outer2x4NEON(SB)
#define OUTER3x4 ·outer3x4NEON(SB)
#define OUTER4x4 ·outer4x4NEON(SB)

#define START(a, b, c, d) \
	ZERO(a); \
	ZERO(b); \
	ZERO(c); \
	ZERO(d)

#define START1(a) ZERO(a)

#include "outer_arm64.h"
