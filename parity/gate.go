package parity

import (
	"context"
	"encoding/json"
	"math"

	"github.com/smelt-go/smelt/runtime"
)

// Gate is one question a bundle is asked.
type Gate struct {
	ID     string
	Proves string // one line
	// Skip says why the gate does not apply; "" if it does.
	Skip func(*Subject) string
	// Run measures. An error means that the gate could not be run at all.
	Run func(context.Context, *Subject) (*Result, error)
}

// Gates lists all gates in the order in which they run: what explains others
// comes first. Those up to index look at files, the others run the bundle.
func Gates() []Gate {
	gates := []Gate{manifestGate(), contractGate(), sourceGate(), appGate(), tokenizerGate(), recordingGate(), weightsGate(), codesGate(),
		indexGate(), finiteGate()}
	for _, via := range []Via{ViaDecode, ViaPrefill, ViaVerify} {
		gates = append(gates, logitsGate(runtime.FP32, via))
	}
	for _, via := range []Via{ViaDecode, ViaPrefill, ViaVerify} {
		gates = append(gates, logitsGate(runtime.Typed, via))
	}
	return append(gates, hiddenGate(), taggedGate(), tokenGate(), positionsGate(), windowGate(), draftsGate(), kvGate(), functionsGate(), ladderGate())
}

// Status is the verdict of one gate.
type Status string

// Verdicts.
const (
	Pass Status = "pass"
	Fail Status = "fail"
	Skip Status = "skip"
)

// Result is what a gate measured.
type Result struct {
	ID      string   `json:"id"`
	Proves  string   `json:"proves"`
	Status  Status   `json:"status"`
	Reason  string   `json:"reason,omitempty"` // of a failure or of a skip
	Numbers []Number `json:"numbers,omitempty"`
	Flips   []Flip   `json:"flips,omitempty"` // at most ten
	// Symptom is what a gate without bisection saw, in a few words that do not
	// depend on the model.
	Symptom string   `json:"symptom,omitempty"`
	Finding *Finding `json:"finding,omitempty"`
	// Cause is the fault of the catalog that looks most like this failure.
	Cause   *Cause  `json:"likeliest_cause,omitempty"`
	Seconds float64 `json:"-"`

	suspect *suspect // where bisection should look
}

// suspect is a run that went wrong.
type suspect struct {
	rec      *Recording
	mode     runtime.Mode
	via      Via
	position int
}

// Number is one measurement, with the limit it was held against if it has
// one.
type Number struct {
	Name  string `json:"name"`
	Value Num    `json:"value"`
	Limit *Num   `json:"limit,omitempty"`
}

// Num is a float64 whose JSON is null where it is not finite.
type Num float64

// MarshalJSON writes the shortest decimal, or null.
func (n Num) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// note records a number.
func (r *Result) note(name string, v float64) {
	r.Numbers = append(r.Numbers, Number{Name: name, Value: Num(v)})
}

// atMost records a number and fails the gate if it exceeds limit or is NaN.
func (r *Result) atMost(name string, v, limit float64) {
	l := Num(limit)
	r.Numbers = append(r.Numbers, Number{name, Num(v), &l})
	if !(v <= limit) {
		r.fail("%s is %s, at most %s allowed", name, short(v), short(limit))
	}
}

// symptom notes what is wrong in the words of the catalog; the first stays.
func (r *Result) symptom(s string) {
	if r.Symptom == "" {
		r.Symptom = s
	}
}

// failAt makes the gate fail at a position.
func (r *Result) failAt(position int, format string, args ...any) {
	if r.Status != Fail && r.Finding == nil {
		r.Finding = &Finding{Layer: -1, Position: position}
	}
	r.fail(format, args...)
}

// fail makes the gate fail; the first reason stays.
func (r *Result) fail(format string, args ...any) {
	if r.Status != Fail {
		r.Status, r.Reason = Fail, sprintf(format, args...)
	}
}
