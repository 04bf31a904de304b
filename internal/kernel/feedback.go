package kernel

import (
	"unsafe"
)

// FeedbackRows is how many rows the kernels of error feedback take at once.
const FeedbackRows = 32

// feedbackForms are kernels of error feedback. Sums are fused in the assembly
// forms: codes depend on the level.
type feedbackForms struct {
	round   func(codes, errs, loss, t *float32, ldt, n int, fb *float32, ldf int, d, par *float32, top float32)
	moments func(sums, t *float32, ldt, n int, d, par *float32, top float32)
}

// FeedbackParams are what 32 rows of a group are coded with: scales, their
// inverses (0 where the scale is 0) and biases.
type FeedbackParams struct{ Scale, Inverse, Bias [FeedbackRows]float32 }

// FeedbackRound codes n columns of 32 rows, one after the other, with error
// feedback: t holds targets [n, 32], columns ldt apart, fb the factors [n, n] of
// rows ldf apart, of which those below the diagonal are used. For column j
//
//	x = t_j + Σ_{i<j} errs_i·fb[j,i]
//	code_j = rint(clip((x − bias)·inverse, 0, top))
//	decoded = code·scale + bias, rounded twice
//	errs_j = t_j − decoded
//	loss += d_j·(x − decoded)²
//
// codes [n, 32] and errs [n rounded up to even, 32] are written.
func FeedbackRound(codes, errs []float32, loss *[FeedbackRows]float32, t []float32, ldt, n int, fb []float32, ldf int, d []float32, p *FeedbackParams, top int) {
	if n == 0 {
		clear(loss[:])
		return
	}
	even := (n + 1) &^ 1
	errs = errs[:even*FeedbackRows]
	_, _, _, _ = codes[n*FeedbackRows-1], t[(n-1)*ldt+FeedbackRows-1], fb[(n-1)*ldf+n-1], d[n-1]
	if n&1 != 0 && n > 1 { // the odd one out is read
		_ = fb[(n-1)*ldf+n-1]
	}
	clear(errs)
	feedback().round(ptr(codes), ptr(errs), &loss[0], ptr(t), ldt, n, ptr(fb), ldf, ptr(d), (*float32)(unsafe.Pointer(p)), float32(top))
}

// LaneSums are sums over the codes of a group, for 32 rows.
type LaneSums struct{ Q, QQ, QW [FeedbackRows]float32 }

// LaneParams are inverses of scales, biases and centers of 32 rows.
type LaneParams struct{ Inverse, Bias, Center [FeedbackRows]float32 }

// LaneMoments sums, over n columns of 32 rows, the codes q = rint(clip((t −
// bias)·inverse, 0, top)) times d: d·q, d·q² and d·q·(t − center).
func LaneMoments(s *LaneSums, t []float32, ldt, n int, d []float32, p *LaneParams, top int) {
	_, _ = t[(n-1)*ldt+FeedbackRows-1], d[n-1]
	feedback().moments(&s.Q[0], ptr(t), ldt, n, ptr(d), &p.Inverse[0], float32(top))
}

func feedback() *feedbackForms {
	if cur.feedback != nil {
		return cur.feedback
	}
	return &genericFeedback
}

func code(x, bias, inv, top float32) float32 {
	v := float32((x - bias) * inv)
	if !(v > 0) {
		v = 0
	} else if v > top {
		v = top
	}
	return float32(v+magic) - magic
}

var genericFeedback = feedbackForms{
	round: func(codes, errs, loss, t *float32, ldt, n int, fb *float32, ldf int, d, par *float32, top float32) {
		const rows = FeedbackRows
		q, e := unsafe.Slice(codes, n*rows), unsafe.Slice(errs, n*rows)
		ts, f, ds := unsafe.Slice(t, (n-1)*ldt+rows), unsafe.Slice(fb, (n-1)*ldf+n), unsafe.Slice(d, n)
		sum, p := unsafe.Slice(loss, rows), (*FeedbackParams)(unsafe.Pointer(par))
		clear(sum)
		var even, odd [rows]float32
		for j := range n {
			target := ts[j*ldt:][:rows]
			copy(even[:], target)
			clear(odd[:])
			for i := range j {
				c, acc := f[j*ldf+i], &even
				if i&1 != 0 {
					acc = &odd
				}
				for r, v := range e[i*rows:][:rows] {
					acc[r] += float32(c * v)
				}
			}
			for r := range rows {
				x := even[r] + odd[r]
				v := code(x, p.Bias[r], p.Inverse[r], top)
				q[j*rows+r] = v
				w := float32(v*p.Scale[r]) + p.Bias[r]
				e[j*rows+r] = target[r] - w
				x -= w
				sum[r] += float32(ds[j] * float32(x*x))
			}
		}
	},
	moments: func(sums, t *float32, ldt, n int, d, par *float32, top float32) {
		const rows = FeedbackRows
		s, p := (*LaneSums)(unsafe.Pointer(sums)), (*LaneParams)(unsafe.Pointer(par))
		ts, ds := unsafe.Slice(t, (n-1)*ldt+rows), unsafe.Slice(d, n)
		*s = LaneSums{}
		for j := range n {
			for r, w := range ts[j*ldt:][:rows] {
				v := code(w, p.Bias[r], p.Inverse[r], top)
				f := float32(ds[j] * v)
				s.Q[r] += f
				s.QQ[r] += float32(f * v)
				s.QW[r] += float32(f * (w - p.Center[r]))
			}
		}
	},
}
