package parity

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Signature is how a fault shows: the gate that fails first and what it saw, in
// words that do not depend on the model. Keys are those of signatureWeights.
type Signature map[string]string

// KnownFault is a fault of the catalog with the signatures it had when it was
// injected.
type KnownFault struct {
	Fault      string      `json:"fault"`
	Cause      string      `json:"cause"`
	Signatures []Signature `json:"signatures"`
}

// Cause is a known fault that looks like a failure.
type Cause struct {
	Fault string `json:"fault"`
	Text  string `json:"text"`
	// Match is the weight of what agrees, 0…1.
	Match float64 `json:"match"`
	// Or lists other faults that look the same.
	Or []string `json:"or,omitempty"`
}

// String is what a report says.
func (c *Cause) String() string {
	s := fmt.Sprintf("looks like: %s (%.0f %% of the signature of %s)", c.Text, 100*c.Match, c.Fault)
	if len(c.Or) > 0 {
		s += "; or: " + strings.Join(c.Or, "; ")
	}
	return s
}

// signaturesJSON is written by the tests of parity/faults.
//
//go:embed signatures.json
var signaturesJSON []byte

var knownFaults = sync.OnceValues(func() ([]KnownFault, error) {
	var out []KnownFault
	if err := json.Unmarshal(signaturesJSON, &out); err != nil {
		return nil, fmt.Errorf("parity: signatures.json: %w", err)
	}
	return out, nil
})

// KnownFaults lists the faults of the catalog with their signatures.
func KnownFaults() ([]KnownFault, error) {
	known, err := knownFaults()
	return slices.Clone(known), err
}

// signatureWeights say how much each part of a signature tells.
var signatureWeights = map[string]float64{
	"gate": 3, "symptom": 4, "site": 4, "change": 4, "start": 2, "scope": 2, "function": 2,
}

// Signature is that of the first gate that failed; nil if none did.
func (r *Report) Signature() Signature {
	for _, g := range r.Gates {
		if g.Status == Fail {
			return g.signature(r.window)
		}
	}
	return nil
}

var numbered = regexp.MustCompile(`layers[._]\d+[._]`)

func (res *Result) signature(window int) Signature {
	s := Signature{"gate": res.ID}
	for _, mode := range []string{"fp32.", "typed."} { // the mode is a matter of the bundle
		s["gate"] = strings.Replace(s["gate"], mode, "", 1)
	}
	set := func(k, v string) {
		if v != "" {
			s[k] = v
		}
	}
	set("symptom", res.Symptom)
	if f := res.Finding; f != nil {
		set("site", numbered.ReplaceAllString(f.Site, "layers."))
		set("change", f.Change)
		set("scope", f.Scope)
		set("start", startOf(f.Position, window))
		function, _, _ := strings.Cut(f.Function, "_")
		set("function", function)
	}
	return s
}

// startOf places a position among those where something begins.
func startOf(p, window int) string {
	switch {
	case p < 0:
		return ""
	case p <= 1:
		return fmt.Sprint(p)
	case window > 0 && p == window-1:
		return "W-1"
	case window > 0 && p == window:
		return "W"
	case window > 0 && p > window:
		return "past W"
	case p < 16:
		return "early"
	}
	return "later"
}

// likeness is the weight of what two signatures have in common.
// Another intermediate or another symptom is another fault, whatever else agrees.
func likeness(a, b Signature) float64 {
	if a["site"] != b["site"] || a["symptom"] != b["symptom"] {
		return 0
	}
	var same, all float64
	for k, w := range signatureWeights {
		x, y := a[k], b[k]
		if x == "" && y == "" {
			continue
		}
		all += w
		if x == y {
			same += w
		}
	}
	return same / math.Max(all, 1)
}

// minLikeness is how much must agree before a cause is worth naming.
const minLikeness = 0.7

// Diagnose names the known fault whose signature is most like s; nil if none
// is like it.
func Diagnose(s Signature) (*Cause, error) {
	known, err := knownFaults()
	if err != nil {
		return nil, err
	}
	return diagnose(known, s), nil
}

func diagnose(known []KnownFault, s Signature) *Cause {
	var best *Cause
	for _, k := range known {
		match := 0.0
		for _, sig := range k.Signatures {
			match = math.Max(match, likeness(s, sig))
		}
		switch {
		case match < minLikeness || best != nil && match < best.Match:
		case best != nil && match == best.Match:
			if k.Cause != best.Text && !slices.Contains(best.Or, k.Cause) {
				best.Or = append(best.Or, k.Cause)
			}
		default:
			best = &Cause{Fault: k.Fault, Text: k.Cause, Match: match}
		}
	}
	return best
}

// diagnose looks the first failure up in the catalog.
func (r *Report) diagnose(s *Subject) error {
	r.window = s.window()
	for _, g := range r.Gates {
		if g.Status != Fail {
			continue
		}
		c, err := Diagnose(g.signature(r.window))
		if err != nil {
			return err
		}
		g.Cause = c
		return nil
	}
	return nil
}
