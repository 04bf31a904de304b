package speculate

import (
	"encoding/json"
	"fmt"
	"os"
)

// Recorded are the records of an A/B that another runtime made.
type Recorded struct {
	Target string
	Names  []string // A first
	Arms   [][]Record
}

// recordFields are those without which a record cannot be judged.
var recordFields = []string{"prompt", "generatedTokens", "drafted", "accepted", "targetCalls", "wallMs", "draftedByPos", "acceptedByPos"}

// Import reads per-prompt records: an object with drafterA, drafterB, prompts,
// resultsA and resultsB, as the drafter A/B of mlx-bun writes, or a result.json
// of this package. Missing fields, contradictions and arms with other prompts
// are errors.
func Import(path string) (*Recorded, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := parseRecorded(data)
	if err != nil {
		return nil, fmt.Errorf("speculate: %s: %w", path, err)
	}
	return r, nil
}

func parseRecorded(data []byte) (*Recorded, error) {
	var file struct {
		Target             string
		DrafterA, DrafterB string
		Prompts            []string
		ResultsA, ResultsB []json.RawMessage
		Arms               []struct {
			Name    string
			Records []json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("not an object of per-prompt records: %w", err)
	}
	r := &Recorded{Target: file.Target}
	add := func(name, where string, raw []json.RawMessage) error {
		var records []Record
		for i, m := range raw {
			rec, err := parseRecord(m)
			if err != nil {
				return fmt.Errorf("%s[%d]: %w", where, i, err)
			}
			if file.Prompts != nil {
				if i >= len(file.Prompts) {
					return fmt.Errorf("%s has %d records for %d prompts", where, len(raw), len(file.Prompts))
				}
				if rec.Prompt != file.Prompts[i] {
					return fmt.Errorf("%s[%d] is of the prompt %s, prompts[%d] is %s", where, i, quote(rec.Prompt), i, quote(file.Prompts[i]))
				}
			}
			records = append(records, *rec)
		}
		if len(records) == 0 {
			return fmt.Errorf("%s has no records", where)
		}
		if file.Prompts != nil && len(records) != len(file.Prompts) {
			return fmt.Errorf("%s has %d records for %d prompts", where, len(records), len(file.Prompts))
		}
		r.Names, r.Arms = append(r.Names, name), append(r.Arms, records)
		return nil
	}
	if file.Arms != nil {
		for i, a := range file.Arms {
			if err := add(a.Name, fmt.Sprintf("arms[%d].records", i), a.Records); err != nil {
				return nil, err
			}
		}
	} else {
		if err := add(file.DrafterA, "resultsA", file.ResultsA); err != nil {
			return nil, err
		}
		if err := add(file.DrafterB, "resultsB", file.ResultsB); err != nil {
			return nil, err
		}
	}
	if len(r.Arms) < 2 {
		return nil, fmt.Errorf("%d arms, want two or more", len(r.Arms))
	}
	for _, b := range r.Arms[1:] {
		if err := samePrompts(r.Arms[0], b); err != nil {
			return nil, trim(err)
		}
	}
	return r, nil
}

func parseRecord(raw json.RawMessage) (*Record, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("not a record: %w", err)
	}
	for _, f := range recordFields {
		if v, ok := fields[f]; !ok || string(v) == "null" {
			return nil, fmt.Errorf("field %q is missing", f)
		}
	}
	var r Record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	return &r, r.check()
}

// trim drops the package's name from an error that gets a longer one in front.
func trim(err error) error {
	const p = "speculate: "
	if s := err.Error(); len(s) > len(p) && s[:len(p)] == p {
		return fmt.Errorf("%s", s[len(p):])
	}
	return err
}
