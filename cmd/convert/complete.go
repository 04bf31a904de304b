package main

import "github.com/spf13/cobra"

// completeDirs makes a verb's arguments complete to directories.
func completeDirs(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
}

// completeValues makes flags complete to their values.
func completeValues(cmd *cobra.Command, values map[string][]string) {
	for flag, v := range values {
		// The flag exists: the caller has just defined it.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(v, cobra.ShellCompDirectiveNoFileComp))
	}
}

// completeFiles makes a flag complete to files with the extensions.
func completeFiles(cmd *cobra.Command, flag string, ext ...string) {
	_ = cmd.MarkFlagFilename(flag, ext...)
}
