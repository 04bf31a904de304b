package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
)

// versionInfo is what version prints.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Spec     int    `json:"specification_version"` // of the packages that convert writes
	Opset    string `json:"opset"`
	Contract int    `json:"contract_version"`
}

func buildVersion() versionInfo {
	v := versionInfo{Version: "(devel)", Spec: conversion.Opset.SpecVersion(), Opset: conversion.Opset.String(), Contract: chunking.ContractVersion}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (s *session) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, and that of the files it writes",
		Example: s.examples("version", "version --json"),
		Args:    takes(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			if asJSON {
				return s.printJSON(v)
			}
			fmt.Fprintf(s.stdout, "%s %s", s.name, v.Version)
			if v.Revision != "" {
				fmt.Fprintf(s.stdout, " (%.12s", v.Revision)
				if v.Modified {
					fmt.Fprint(s.stdout, ", modified")
				}
				fmt.Fprint(s.stdout, ")")
			}
			fmt.Fprintf(s.stdout, ", %s\nwrites %s packages (specification %d), contract version %d\n", v.Go, v.Opset, v.Spec, v.Contract)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
