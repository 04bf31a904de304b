package kernel

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Kernels load codes 16 bytes at a time, and must not touch what lies behind
// the last ones: a weight file may end there.
func TestPackedStaysInsideTheCodes(t *testing.T) {
	page := unix.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	for _, guard := range [][]byte{mem[:page], mem[2*page:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	all := packedCases()
	eachLevel(t, func(t *testing.T) {
		for _, p := range all {
			n := len(p.Codes)
			if n > page {
				continue
			}
			codes := p.Codes
			// Faults are fatal: a failure names no case.
			p.Codes = mem[2*page-n : 2*page]
			copy(p.Codes, codes)
			if err := p.Prepare(); err != nil {
				t.Fatal(err)
			}
			dst := make([]float32, p.N*p.K)
			p.Rows(dst, 0, p.N)
			p.Mul(dst, p.N, dst, p.K, 1, 0, p.N)
			p.Codes = codes
		}
	})
}
