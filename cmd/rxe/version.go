package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// version says what this was built of, as far as the program knows.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "rxe, version unknown"
	}
	return versionOf(b)
}

func versionOf(b *debug.BuildInfo) string {
	v := b.Main.Version
	if v == "" {
		v = "(devel)"
	}
	s := "rxe " + v
	set := map[string]string{}
	for _, x := range b.Settings {
		set[x.Key] = x.Value
	}
	if r := set["vcs.revision"]; r != "" {
		s += ", revision " + r[:min(12, len(r))]
		if set["vcs.modified"] == "true" {
			s += " with changes"
		}
	}
	return s + ", " + b.GoVersion
}
