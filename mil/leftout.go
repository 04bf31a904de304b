package mil

// leftOut lists the operators of Core ML that have no entry in the op table,
// and what they are. Language models need none of them.
var leftOut = map[string]string{
	"affine": "image resizing", "crop_resize": "image resizing", "resample": "image resizing",
	"resize": "image resizing", "resize_bilinear": "image resizing", "resize_nearest_neighbor": "image resizing",
	"upsample_bilinear": "image resizing", "upsample_nearest_neighbor": "image resizing",
	"gru": "recurrent", "lstm": "recurrent", "rnn": "recurrent",
	"random_bernoulli": "random", "random_categorical": "random", "random_normal": "random", "random_uniform": "random",
	"make_list": "list", "list_gather": "list", "list_length": "list", "list_read": "list", "list_scatter": "list", "list_write": "list",
	"non_maximum_suppression": "object detection",
	"classify":                "classifier", "conv_quantized": "experimental",
}

// unknownOperator says why an operator is not in the table.
func unknownOperator(kind string) string {
	if what, ok := leftOut[kind]; ok {
		return kind + " is not supported (" + what + " operators are left out)"
	}
	return "unknown operator"
}
