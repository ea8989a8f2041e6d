package main

import (
	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/internal/devinfo"
)

func newGIDsCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gids",
		Short: "List GIDs, as show_gids does",
		Long: `List the GID table of the device that an interface or an address carries;
without --dev and --addr those of every interface that could carry one. A peer's
tools take such an index as -g or -x.`,
		Args: byFlag,
	}
	devices := describe(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := devices()
		write := devinfo.WriteGIDs
		if asJSON {
			write = devinfo.WriteGIDsJSON
		}
		if len(all) > 0 {
			if werr := write(cmd.OutOrStdout(), all); werr != nil {
				return werr
			}
		}
		return err
	}
	return cmd
}
