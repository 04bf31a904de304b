#include "textflag.h"
#include "neon_arm64.h"

#define OUTER1x64 ·outerAdd1x64NEON(SB)
#define OUTER1x16 ·outerAdd1x16NEON(SB)
#define OUTER2x32 ·outerAdd2x32NEON(SB)
#define OUTER3x16 ·outerAdd3x16NEON(SB)
#define OUTER4x16 ·outerAdd4x16NEON(SB)
#define OUTER1x4 ·outerAdd1x4NEON(SB)
#define OUTER2x4 ·outerAdd2x4NEON(SB)
#define OUTER3x4 ·outerAdd3x4NEON(SB)
#define OUTER4x4 ·outerAdd4x4NEON(SB)

#define START(a, b, c, d) VLD1.P 64(R6), [a.S4, b.S4, c.S4, d.S4]

#define START1(a) VLD1.P 16(R6), [a.S4]

#include "outer_arm64.h"
