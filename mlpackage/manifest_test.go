package mlpackage

import (
	"regexp"
	"strings"
	"testing"
)

func TestManifestRoundTrip(t *testing.T) {
	for _, withWeights := range []bool{false, true} {
		b, err := newManifest(withWeights).encode()
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseManifest(b)
		if err != nil {
			t.Fatal(err)
		}
		w, err := m.weights()
		if err != nil || m.model() != "com.apple.CoreML/model.mlmodel" || (w == "com.apple.CoreML/weights") != withWeights {
			t.Errorf("model %q, weights %q, %v", m.model(), w, err)
		}
	}
}

func TestIdentifiers(t *testing.T) {
	a, b := identifier(modelPath), identifier(weightsPath)
	v5 := regexp.MustCompile(`^[0-9A-F]{8}-[0-9A-F]{4}-5[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}$`)
	if a == b || !v5.MatchString(a) || !v5.MatchString(b) || a != identifier(modelPath) {
		t.Errorf("identifiers %s, %s", a, b)
	}
}

const (
	item   = `{"author": "com.apple.CoreML", "description": "d", "name": "model.mlmodel", "path": "com.apple.CoreML/model.mlmodel"}`
	weight = `{"author": "com.apple.CoreML", "description": "d", "name": "weights", "path": "w"}`
)

func TestManifestRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", ``, "EOF"},
		{"not an object", `[1]`, "cannot unmarshal"},
		{"null", `null`, "mandatory"},
		{"no version", `{"itemInfoEntries": {"A": ` + item + `}, "rootModelIdentifier": "A"}`, "mandatory"},
		{"no root", `{"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": ` + item + `}}`, "mandatory"},
		{"newer", `{"fileFormatVersion": "2.0.0", "itemInfoEntries": {"A": ` + item + `}, "rootModelIdentifier": "A"}`, `"2.0.0"`},
		{"root dangles", `{"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": ` + item + `}, "rootModelIdentifier": "B"}`, "names no item"},
		{"duplicate", `{"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": ` + item + `, "A": ` + item + `}, "rootModelIdentifier": "A"}`, `duplicate key "A"`},
		{"no path", `{"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": {"author": "x", "description": "", "name": "n"}}, "rootModelIdentifier": "A"}`, "item A"},
		{"leaves", `{"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": ` + strings.Replace(item, "com.apple.CoreML/model", "../model", 1) + `}, "rootModelIdentifier": "A"}`, "leaves the package"},
		{"absolute", `{"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": ` + strings.Replace(item, "com.apple.CoreML/model", "/model", 1) + `}, "rootModelIdentifier": "A"}`, "leaves the package"},
		{"wrong type", `{"fileFormatVersion": 1, "itemInfoEntries": {"A": ` + item + `}, "rootModelIdentifier": "A"}`, "cannot unmarshal"},
		{"deep", strings.Repeat("[", 1000), "nested too deeply"},
		{"UTF-8", "{\"\xff\": 1}", "UTF-8"},
	} {
		m, err := parseManifest([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want …%s…", c.name, m, err, c.want)
		}
	}
	m, err := parseManifest([]byte(`{"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": ` + item + `, "B": ` + weight + `, "C": ` + weight + `}, "rootModelIdentifier": "A"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.weights(); err == nil {
		t.Error("two weight items were accepted")
	}
}

func FuzzManifest(f *testing.F) {
	for _, w := range []bool{false, true} {
		b, err := newManifest(w).encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"fileFormatVersion": "1.0.0", "itemInfoEntries": {"A": ` + item + `}, "rootModelIdentifier": "A"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		n, err := parseManifest(again)
		if err != nil {
			t.Fatal(err)
		}
		if n.model() != m.model() || strings.Contains("/"+m.model()+"/", "/../") {
			t.Fatalf("model path %q, then %q", m.model(), n.model())
		}
	})
}
