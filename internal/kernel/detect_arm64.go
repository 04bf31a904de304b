package kernel

import "golang.org/x/sys/cpu"

// NEON is part of every arm64 processor that Go runs on; the feature is asked
// for so that GODEBUG=cpu.asimd=off chooses the Go form.
func init() {
	if cpu.ARM64.HasASIMD {
		levels = append([]*level{&neonLevel}, levels...)
		cur = levels[0]
	}
}
