package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/sensitivity"
)

// example is a map of two layers, an embedding and a name that has to be escaped.
func example() *sensitivity.Map {
	m := &sensitivity.Map{Schema: sensitivity.Schema, Estimator: sensitivity.KL, Kernel: "test", KeptBytes: 20, KeptParameters: 10,
		Source:      sensitivity.Source{Name: "a<b>&c", SHA256: "0123", Layers: 2, Parameters: 10, Bytes: 20},
		Calibration: &sensitivity.Calibration{SHA256: "4567", Sequences: 2, Tokens: 8, Domains: map[string]int{"prose": 1, "code": 1}}}
	add := func(path string, class quant.Class, layer int, n int64, scale float64) {
		t := sensitivity.Tensor{Path: path, Class: class, Layer: layer, Shape: []int{int(n / 64), 64}, Parameters: n, Bytes: 2 * n}
		for _, b := range []int{3, 4, 6, 8} {
			t.Candidates = append(t.Candidates, sensitivity.Measurement{Format: quant.Format{Codec: "affine", Bits: b, GroupSize: 64, Method: quant.RTN},
				Bytes: n * int64(2*b+1) / 16, Damage: scale / float64(int(1)<<(2*b)), StandardError: 1e-4})
		}
		m.Tensors = append(m.Tensors, t)
		m.Source.Parameters += n
		m.Source.Bytes += t.Bytes
	}
	add("model.embed_tokens", quant.Embedding, -1, 64000, 30)
	for l := range 2 {
		add(fmt.Sprintf("model.layers.%d.self_attn.q_proj", l), quant.Query, l, 6400, 1)
		add(fmt.Sprintf("model.layers.%d.mlp.down_proj", l), quant.Down, l, 12800, 9)
	}
	return m
}

func solved(t *testing.T) Page {
	m := example()
	p, err := m.Problem(sensitivity.ProblemOptions{})
	if err != nil {
		t.Fatal(err)
	}
	front, err := Sweep(p, 2, 9, 12)
	if err != nil {
		t.Fatal(err)
	}
	p.Cap = m.Cap(5)
	s, err := allocate.Solve(p.Problem)
	if err != nil {
		t.Fatal(err)
	}
	return Page{Map: m, Problem: p, Solution: s, Front: front, Points: []Point{{"<other>", 4.5, 0.2}},
		Lines: []Line{{Name: "one <format>", Front: Compare(p, "uniform", 20), Steps: true}}}
}

// Names cover neither each other nor marks, and stay inside.
func TestLabels(t *testing.T) {
	l := &labels{area: rectangle{0, 0, 400, 300}}
	l.line(0, 300, 400, 0)
	at := [][2]float64{{100, 100}, {104, 103}, {96, 110}, {395, 5}, {3, 297}, {200, 150}, {210, 150}}
	for _, p := range at {
		l.mark(p[0], p[1], 6)
	}
	for _, p := range at {
		l.place(p[0], p[1], 5, 90, 12)
	}
	for i, a := range l.taken {
		if i >= len(at) && math.Abs(a.overlap(l.area)-90*12) > 1e-6 {
			t.Errorf("%v leaves the chart", a)
		}
		for j, b := range l.taken {
			if i >= len(at) && i != j && a.overlap(b) > 0 {
				t.Errorf("%v covers %v", a, b)
			}
		}
	}
}

// Other rules never beat the front: it is the optimum of each size.
func TestCompare(t *testing.T) {
	p := solved(t)
	for _, rule := range []string{"uniform", "threshold", "static", "greedy"} {
		found := Compare(p.Problem, rule, 12)
		if len(found) == 0 {
			t.Errorf("%s finds nothing", rule)
		}
		for i, f := range found {
			q := *p.Problem
			q.Cap = f.Bytes
			best, err := allocate.Solve(q.Problem)
			if err != nil || best.Damage > f.Damage+1e-12 {
				t.Errorf("%s: damage %v in %d bytes, the optimum is %v, %v", rule, f.Damage, f.Bytes, best, err)
			}
			if i > 0 && f.Bytes <= found[i-1].Bytes {
				t.Errorf("%s: %d bytes after %d", rule, f.Bytes, found[i-1].Bytes)
			}
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		lo, hi float64
		want   string
	}{{0.3, 7, "[0.2 0.5 1 2 5 10]"}, {1, 1, "[1 2]"}, {0.001, 0.001001, "[0.001 0.002]"}} {
		var got []string
		for _, v := range ticks(tt.lo, tt.hi) {
			got = append(got, fmt.Sprintf("%.4g", v))
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%v to %v: %v, want %s", tt.lo, tt.hi, got, tt.want)
		}
	}
}

// The page is well formed, needs nothing from elsewhere, and says what is asked
// of it.
func TestHTML(t *testing.T) {
	page := HTML(solved(t))
	d := xml.NewDecoder(bytes.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var open []string
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.StartElement:
			open = append(open, x.Name.Local)
			for _, a := range x.Attr {
				if (a.Name.Local == "src" || a.Name.Local == "href") && a.Value != "" {
					t.Errorf("<%s> refers to %s", x.Name.Local, a.Value)
				}
			}
		case xml.EndElement:
			if n := len(open); n == 0 || open[n-1] != x.Name.Local {
				t.Fatalf("</%s> closes %v", x.Name.Local, open)
			}
			open = open[:len(open)-1]
		}
	}
	text := string(page)
	for _, want := range []string{"a&lt;b&gt;&amp;c", "&lt;other&gt;", "lower bound", "model.layers.1.mlp.down_proj: ", "Where the bytes go", "proven gap", "SHA-256 0123", "Damage at affine 3-bit g64 rtn",
		"one &lt;format&gt;", " bits</text>", "of all damage"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, no := range []string{"http://", "https://", "<script", "@import", "NaN", "Inf"} {
		if strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), no) {
			t.Errorf("the page has %q", no)
		}
	}
	if !bytes.Equal(page, HTML(solved(t))) {
		t.Error("another page of the same map")
	}
}

// The front falls, and its files say the same.
func TestSweep(t *testing.T) {
	p := solved(t)
	for i := 1; i < len(p.Front); i++ {
		if p.Front[i].Damage > p.Front[i-1].Damage || p.Front[i].BPW > p.Front[i].Budget {
			t.Errorf("%+v after %+v", p.Front[i], p.Front[i-1])
		}
	}
	if n := strings.Count(string(CSV(p.Front)), "\n"); n != len(p.Front)+1 {
		t.Errorf("%d lines of %d", n, len(p.Front))
	}
	svg := FrontSVG(p.Front, p.Points)
	if strings.Count(string(svg), `class="dot"`) != len(p.Front) || xml.Unmarshal(svg, new(struct{})) != nil {
		t.Errorf("%s", svg)
	}
	prob, err := p.Map.Problem(sensitivity.ProblemOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Sweep(prob, 0.5, 1, 3); err == nil || !strings.Contains(err.Error(), "the least is") {
		t.Errorf("budgets that are too small: %v", err)
	}
}
