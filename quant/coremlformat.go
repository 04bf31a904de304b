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
	if err := f.checkSparse(); err != nil {
		return err
	}
	if err := f.checkFeedback(); err != nil {
		return err
	}
	if f.Codec != "palette" && (f.Vector != 0 || f.Table != "" || f.Tables != "" || f.ChannelScale) {
		return fmt.Errorf("codec %s has no vector, table, tables or channel_scale", f.Codec)
	}
	if f.Codec != "linear" && (f.Granularity != "" || f.Unsigned || f.Asymmetric) {
		return fmt.Errorf("codec %s has no granularity, unsigned or asymmetric", f.Codec)
	}
	switch f.Codec {
	case "linear":
		return trim(f.Linear().check())
	case "palette":
		return f.checkPalette()
	case "sparse":
		if !f.sparse() {
			return fmt.Errorf("codec sparse needs sparsity or pattern")
		}
		if f.Bits != 0 || f.GroupSize != 0 {
			return fmt.Errorf("codec sparse has no bits or group_size (codec palette or linear with sparsity has)")
		}
		return nil
	}
	return fmt.Errorf("codec %q is unknown to Core ML (want linear, palette or sparse)", f.Codec)
}

func (f Format) checkSparse() error {
	switch {
	case f.Sparsity != 0 && f.Pattern != "":
		return fmt.Errorf("sparsity and pattern exclude each other")
	case !(f.Sparsity >= 0 && f.Sparsity < 1):
		return fmt.Errorf("sparsity is %g, want a part below 1", f.Sparsity)
	case f.Pattern != "":
		_, _, err := f.pattern()
		return err
	}
	return nil
}

func (f Format) checkPalette() error {
	switch {
	case !slices.Contains([]int{1, 2, 3, 4, 6, 8}, f.Bits):
		return fmt.Errorf("palettes have no %d-bit codes (want 1, 2, 3, 4, 6 or 8)", f.Bits)
	case f.GroupSize < 0:
		return fmt.Errorf("group_size is %d, want 0 (a table a tensor) or more", f.GroupSize)
	case f.Vector < 0 || f.Vector > 8:
		return fmt.Errorf("vector is %d, want 1 to 8 rows an index", f.Vector)
	case f.Table != "" && f.Table != "fp16" && f.Table != "int8":
		return fmt.Errorf("table %q is unknown (want fp16 or int8: int4 tables cannot be loaded)", f.Table)
	case f.Tables != "" && f.Tables != "kmeans" && f.Tables != "uniform" && f.Tables != "unique":
		return fmt.Errorf("tables %q is unknown (want kmeans, uniform or unique)", f.Tables)
	case f.vector() > 1 && f.Tables == "uniform":
		return fmt.Errorf("uniform tables have no vectors")
	case f.sparse() && f.vector() > 1:
		return fmt.Errorf("an index of a vector leaves out all of its rows or none: sparsity and pattern go with vector 1 only")
	case f.sparse() && f.ChannelScale:
		return fmt.Errorf("a row's scale behind a sparse palette cannot be stored: sparsity and pattern exclude channel_scale")
	case f.Table == "int8" && f.Tables == "unique":
		return fmt.Errorf("unique tables hold the weights as they are: they cannot be int8")
	}
	return nil
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

// mergeCoreML fills what f leaves out from a format of the same codec.
func (f *Format) mergeCoreML(d Format) {
	if f.Vector == 0 {
		f.Vector = d.Vector
	}
	if f.Table == "" {
		f.Table = d.Table
	}
	if f.Tables == "" {
		f.Tables = d.Tables
	}
	f.ChannelScale = f.ChannelScale || d.ChannelScale
	if f.Sparsity == 0 && f.Pattern == "" {
		f.Sparsity, f.Pattern = d.Sparsity, d.Pattern
	}
}

// hasCoreML reports whether settings are given that MLX's codecs do not have.
func (f Format) hasCoreML() bool {
	return f.Vector != 0 || f.Table != "" || f.Tables != "" || f.ChannelScale || f.Sparsity != 0 || f.Pattern != ""
}
