package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/parity/faults"
)

// gateText is a gate as data.
type gateText struct {
	ID     string `json:"id"`
	Proves string `json:"proves"`
}

// printGates says what every gate proves.
func (s *session) printGates(jsonFile string) error {
	var list []gateText
	for _, g := range parity.Gates() {
		list = append(list, gateText{g.ID, g.Proves})
	}
	if jsonFile != "" {
		if jsonFile != "-" {
			return usagef("parity: --list-gates prints its JSON: give --json -")
		}
		return s.printJSON(list)
	}
	t := newTable(table.Row{"gate", "proves"})
	for _, g := range list {
		t.AppendRow(table.Row{g.ID, g.Proves})
	}
	s.printTable(t)
	return nil
}

// selfTest injects the catalog into conversions of the built-in models.
func (s *session) selfTest(ctx context.Context, jsonFile string, force bool) error {
	if jsonFile != "" && jsonFile != "-" {
		if err := fresh(jsonFile, force); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "smelt-self-test-")
	if err != nil {
		return fmt.Errorf("parity: %w", err)
	}
	defer os.RemoveAll(dir)
	var sources []faults.Source
	for _, name := range fixtures.Embedded() {
		src := filepath.Join(dir, name)
		files, err := fixtures.Files(name)
		if err == nil {
			err = os.CopyFS(src, files)
		}
		if err != nil {
			return fmt.Errorf("parity: %w", err)
		}
		sources = append(sources, faults.Source{Name: name, Dir: src, Golden: filepath.Join(src, "golden.safetensors")})
	}
	bars := s.newBars(ctx)
	start := time.Now()
	t, err := faults.SelfTest(ctx, sources, faults.Options{Progress: func(stage string, done, total int) {
		bars.update(stage, int64(done), int64(total))
	}})
	bars.close()
	if err != nil {
		return err
	}
	data, err := t.JSON()
	if err != nil {
		return err
	}
	switch jsonFile {
	case "-":
		_, err = s.stdout.Write(data)
	case "":
		if err = t.WriteText(s.stdout); err == nil {
			fmt.Fprintf(s.stdout, "%.1f s\n", time.Since(start).Seconds())
		}
	default:
		if err = t.WriteText(s.stdout); err == nil {
			err = writeWhole(jsonFile, data)
		}
	}
	if err != nil {
		return err
	}
	if !t.OK() {
		return errGate
	}
	return nil
}
