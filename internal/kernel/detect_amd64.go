package kernel

import "golang.org/x/sys/cpu"

// Architectures without a file like this one have no levels but Go.
func init() {
	levels = append(detect(), levels...)
	cur = levels[0]
}

// detect returns the levels that the processor supports, best first.
func detect() []*level {
	var out []*level
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA || !x.HasF16C {
		return nil
	}
	if x.HasAVX512F && x.HasAVX512DQ && x.HasAVX512VL {
		out = append(out, &avx512Level)
	}
	return append(out, &avx2Level)
}
