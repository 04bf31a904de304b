// Instructions that the assembler has no mnemonic for, by register number. The
// last operand is the destination. 4 is four lanes of 32 bits.

#define FADD4(m, n, d) WORD $(0x4E20D400 | (m)<<16 | (n)<<5 | (d))
#define FSUB4(m, n, d) WORD $(0x4EA0D400 | (m)<<16 | (n)<<5 | (d)) // n-m
#define FMUL4(m, n, d) WORD $(0x6E20DC00 | (m)<<16 | (n)<<5 | (d))
#define FDIV4(m, n, d) WORD $(0x6E20FC00 | (m)<<16 | (n)<<5 | (d)) // n/m
#define FMAX4(m, n, d) WORD $(0x4E20F400 | (m)<<16 | (n)<<5 | (d)) // NaN if one is
#define FMIN4(m, n, d) WORD $(0x4EA0F400 | (m)<<16 | (n)<<5 | (d)) // NaN if one is
#define FMLA4(m, n, d) WORD $(0x4E20CC00 | (m)<<16 | (n)<<5 | (d)) // d+n·m, one rounding
#define FMLS4(m, n, d) WORD $(0x4EA0CC00 | (m)<<16 | (n)<<5 | (d)) // d-n·m, one rounding
#define FCMGT4(m, n, d) WORD $(0x6EA0E400 | (m)<<16 | (n)<<5 | (d)) // n>m
#define FADDP4(m, n, d) WORD $(0x6E20D400 | (m)<<16 | (n)<<5 | (d)) // sums of neighbours in n, then m
#define FADDP2(n, d) WORD $(0x7E30D800 | (n)<<5 | (d)) // lane 0 + lane 1
#define FNEG4(n, d) WORD $(0x6EA0F800 | (n)<<5 | (d))
#define FRINTN4(n, d) WORD $(0x4E218800 | (n)<<5 | (d)) // ties to even
#define FCVTNS4(n, d) WORD $(0x4E21A800 | (n)<<5 | (d)) // to int32
#define ADD4(m, n, d) WORD $(0x4EA08400 | (m)<<16 | (n)<<5 | (d))
#define SUB4(m, n, d) WORD $(0x6EA08400 | (m)<<16 | (n)<<5 | (d)) // n-m
#define HALVE4(n, d) WORD $(0x4F3F0400 | (n)<<5 | (d)) // SSHR $1
#define SHL23(n, d) WORD $(0x4F375400 | (n)<<5 | (d))
#define MOV4(n, d) WORD $(0x4EA01C00 | (n)<<16 | (n)<<5 | (d))

// Halves: the lower four of a register, or the upper four.
#define FCVTL(n, d) WORD $(0x0E217800 | (n)<<5 | (d))
#define FCVTL2(n, d) WORD $(0x4E217800 | (n)<<5 | (d))
#define FCVTN(n, d) WORD $(0x0E216800 | (n)<<5 | (d))
#define FCVTN2(n, d) WORD $(0x4E216800 | (n)<<5 | (d))

#define ZERO(v) VEOR v.B16, v.B16, v.B16

// FOLD16 adds 16 lanes in a, b, c, d at distances 8 and 4; four remain in a.
#define FOLD16(a, b, c, d) \
	FADD4(c, a, a); \
	FADD4(d, b, b); \
	FADD4(b, a, a)

// FOLD4 adds the lanes of V0 at distances 2 and 1 into lane 0.
#define FOLD4 \
	VEXT   $8, V0.B16, V0.B16, V1.B16; \
	FADD4(1, 0, 0); \
	FADDP2(0, 0)
