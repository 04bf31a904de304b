package mil

import "fmt"

// Normalization. Up to CoreML6 all parameters share x's element type; later
// they may be of the other floating point type.

var normSpecs = []OpSpec{
	op("batch_norm", "gamma * (x - mean) / sqrt(variance + epsilon) + beta, for each channel",
		checked(func(c *Infer) error { return checkChannels(c, 2, 5, "mean", "variance", "gamma", "beta") }),
		req("x", Floats).bind("T"), normAttr("mean"), normAttr("variance"),
		normOpt("gamma"), normOpt("beta"), epsilon(1e-5)),
	op("instance_norm", "batch_norm with the mean and variance of each instance and channel",
		checked(func(c *Infer) error { return checkChannels(c, 3, 5, "gamma", "beta") }),
		req("x", Floats).bind("T"), normOpt("gamma"), normOpt("beta"), epsilon(1e-5)),
	op("layer_norm", "gamma * (x - mean) / sqrt(variance + epsilon) + beta over axes (default all)", checked(checkLayerNorm),
		req("x", Floats).bind("T"), optAttr("axes", Ints32, allAxes), normOpt("gamma"), normOpt("beta"), epsilon(1e-5)),
	op("l2_norm", "x / sqrt(sum of squares + epsilon) over the last three axes",
		checked(func(c *Infer) error {
			if r := c.T("x").Rank(); r < 3 {
				return fmt.Errorf("x has rank %d, want at least 3", r)
			}
			return nil
		}),
		req("x", Floats).bind("T"), epsilon(1e-6)),
	op("local_response_norm", "x / (k + alpha/size * sum of squares of size neighbouring channels)^beta",
		checked(func(c *Infer) error {
			if n := c.Int("size", 1); n < 1 {
				return fmt.Errorf("size %d is not positive", n)
			}
			return checkChannels(c, 3, 5)
		}),
		req("x", Floats).bind("T"), attr("size", Ints32),
		normFloat("alpha", 1e-4), normFloat("beta", 0.75), normFloat("k", 1)),
}

func normAttr(name string) Param { return attr(name, Floats).bind("T").free(CoreML7) }
func normOpt(name string) Param  { return optAttr(name, Floats, nil).bind("T").free(CoreML7) }
func epsilon(def float64) Param  { return normFloat("epsilon", def) }
func allAxes(c *Infer) any       { return upto(c.T("x").Rank()) }

// normFloat is a float whose default follows the other parameters of the op:
// loaders want gamma, beta, mean and epsilon of one type.
func normFloat(name string, def float64) Param {
	return optAttr(name, Floats, func(c *Infer) any {
		d := Float32
		if c.Opset < CoreML7 {
			d = c.T("x").DType
		}
		for _, p := range []string{"mean", "gamma", "beta"} {
			if p != name && c.Has(p) {
				d = c.T(p).DType
				break
			}
		}
		return NewFloats(d, nil, def)
	}).bind("T").free(CoreML7)
}

func upto(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func checkLayerNorm(c *Infer) error {
	x := c.T("x")
	axes, err := c.ReducedAxes("axes", x.Rank())
	if err != nil {
		return err
	}
	for _, p := range []string{"gamma", "beta"} {
		if !c.Has(p) {
			continue
		}
		t := c.T(p)
		ok := t.Rank() == len(axes)
		for i := 0; ok && i < len(axes); i++ {
			ok = sameDim(t.Shape[i], x.Shape[axes[i]])
		}
		if !ok {
			return fmt.Errorf("%s is %v, want the sizes of axes %v of x %v", p, t, axes, x)
		}
	}
	return nil
}
