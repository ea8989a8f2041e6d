package main

import (
	"fmt"

	"github.com/spf13/cobra"

	buildinfo "github.com/gorxe/gorxe/internal/version"
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

// version says what this was built of.
func version() string { return buildinfo.Of("rxe") }
