package quant

import (
	"fmt"
	"slices"
)

// checkCoreML refuses Core ML formats that do not exist.
func (f Format) checkCoreML() error {
	if f.Rounding != "" {
		return fmt.Errorf("codec %s has no rounding", f.Codec)
	}
	switch f.Codec {
	case "linear":
		return trim(f.Linear().check())
	case "palette":
		if f.Granularity != "" || f.Unsigned || f.Asymmetric {
			return fmt.Errorf("codec palette has no granularity, unsigned or asymmetric")
		}
		if !slices.Contains([]int{1, 2, 3, 4, 6, 8}, f.Bits) {
			return fmt.Errorf("palettes have no %d-bit codes (want 1, 2, 3, 4, 6 or 8)", f.Bits)
		}
		if f.GroupSize < 0 {
			return fmt.Errorf("group_size is %d, want 0 (a table a tensor) or more", f.GroupSize)
		}
		return nil
	}
	return fmt.Errorf("codec %q is unknown to Core ML (want linear or palette)", f.Codec)
}

// Linear is the linear form that f describes.
func (f Format) Linear() Linear {
	l := Linear{Bits: f.Bits, Granularity: Granularity(f.Granularity), Block: f.GroupSize, Unsigned: f.Unsigned, Symmetric: !f.Asymmetric}
	if l.Granularity == "" {
		l.Granularity = PerChannel
		if f.GroupSize > 0 {
			l.Granularity = PerBlock
		}
	}
	return l
}
